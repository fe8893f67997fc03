"""The passes over the window on other devices: what those of the core do, which have laws too."""

from typing import Any

import numpy as np
import pytest
import torch

from coco_denoiser.torch.passes import DEVICE, HOST, Passes

D, K = 20_048, 6
LIMIT = 3.4e38
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def window(dtype: torch.dtype, spread: float = 1.0) -> list[torch.Tensor]:
    """Return points and residuals, close and far from the origin, and one observation."""
    draw = torch.Generator().manual_seed(0)
    centre = torch.randn(D, generator=draw, dtype=torch.float64)
    return [
        (centre + spread * torch.randn(*rows, D, generator=draw, dtype=torch.float64)).to(dtype)
        for rows in ((K,), (K,), (), ())
    ]


def taken(passes: Passes, held: list[torch.Tensor]) -> list[Any]:
    """Return vectors as the passes take them."""
    return [v.numpy() for v in held] if passes is HOST else held


def sums(held: list[torch.Tensor], centre: float, used: int, skip: int) -> list[Any]:
    """Return what the passes of the core add up, and those of another device."""
    found = [torch.zeros(3 * used + 2, dtype=torch.float64) for _ in range(2)]
    for passes, out in zip((HOST, DEVICE), found, strict=True):
        passes.measure(*taken(passes, held), centre, LIMIT, skip, *taken(passes, [out]))
    return [out.numpy() for out in found]


@DTYPES
@pytest.mark.parametrize(("used", "skip"), [(2, 0), (6, 1), (6, -1)])
def test_products_are_summed_in_double_precision(dtype: torch.dtype, used: int, skip: int) -> None:
    core, device = sums(window(dtype, spread=1e-3), 0.5, used, skip)
    scale = core[:-2].max()
    # Kernels subtract in double precision, PyTorch in the dtype itself: unbiased rounding.
    close = {torch.float32: (3e-7, 1e-4 * scale), torch.float64: (1e-12, 1e-12 * scale)}
    np.testing.assert_allclose(device[:-2], core[:-2], *close[dtype])
    assert device[-2] == core[-2] == 0.0
    assert device[-1] == pytest.approx(core[-1], rel=1e-6)
    left_out = device[:-2].reshape(3, used) == 0.0
    np.testing.assert_array_equal(left_out.all(axis=0), np.arange(used) == skip)
    np.testing.assert_array_equal(left_out, core[:-2].reshape(3, used) == 0.0)


@DTYPES
@pytest.mark.parametrize("merged", [False, True])
def test_every_device_commits_what_the_core_does(dtype: torch.dtype, merged: bool) -> None:
    weights, results = np.array([0.1, 0.2, 0.0, 0.3, 0.4]), []
    for passes in (HOST, DEVICE):
        held = window(dtype)
        for average in (None, (weights, 0.2, merged)):
            out = torch.zeros_like(held[2])
            passes.commit(*taken(passes, held), 0.5, 3, average, *taken(passes, [out]))
            results += [out, held[0].clone(), held[1].clone()]
    for mine, theirs in zip(results[:6], results[6:], strict=True):
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(mine, theirs, rtol=8 * eps, atol=30 * eps)
    assert not torch.equal(results[0], results[3])


def test_residuals_that_overflow_and_zero_gradients_are_seen() -> None:
    held = window(torch.float32)
    held[2][7] = 1e38  # its residual is beyond float32 for a large centre only
    assert [found[-2] for found in sums(held, 0.5, 5, 2)] == [0.0, 0.0]
    assert all(found[-2] > 0.0 for found in sums(held, 50.0, 5, 2))
    held[3].zero_()
    assert [found[-1] for found in sums(held, 0.5, 5, 2)] == [0.0, 0.0]
