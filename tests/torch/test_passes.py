"""The passes over the window: exact sums, and the same on every device's path."""

from typing import Any

import numpy as np
import pytest
import torch

from coco_denoiser.torch.passes import DEVICE, HOST, Passes

D, K = 20_048, 6
LIMIT = 3.4e38
PASSES = pytest.mark.parametrize("passes", [HOST, DEVICE], ids=["host", "device"])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def window(dtype: torch.dtype, spread: float = 1.0) -> list[torch.Tensor]:
    """Return points and residuals, close and far from the origin, and one observation."""
    draw = torch.Generator().manual_seed(0)
    centre = torch.randn(D, generator=draw, dtype=torch.float64)
    return [
        (centre + spread * torch.randn(*rows, D, generator=draw, dtype=torch.float64)).to(dtype)
        for rows in ((K,), (K,), (), ())
    ]


def products(points: Any, residuals: Any, x: Any, h: Any) -> Any:
    """Return ||dx||^2, <dx, dh> and ||dh||^2, (3, K)."""
    dx, dh = points - x, residuals - h
    return np.stack([(dx * dx).sum(1), (dx * dh).sum(1), (dh * dh).sum(1)])


def taken(passes: Passes, held: list[torch.Tensor]) -> list[Any]:
    """Return vectors as the passes take them."""
    if passes is HOST:
        return [v.numpy() for v in held]
    return held


def sums(passes: Passes, held: list[torch.Tensor], centre: float, used: int, skip: int) -> Any:
    out: Any = np.zeros(3 * used + 2)
    out = out if passes is HOST else torch.from_numpy(out)
    passes.measure(*taken(passes, held), centre, LIMIT, skip, out)
    return np.asarray(out)


@PASSES
@DTYPES
@pytest.mark.parametrize(("used", "skip"), [(2, 0), (6, 1), (6, -1)])
def test_products_are_summed_in_double_precision(
    passes: Passes, dtype: torch.dtype, used: int, skip: int
) -> None:
    held = window(dtype, spread=1e-3)
    found = sums(passes, held, 0.5, used, skip)
    P, R = (v.double().numpy()[:used] for v in held[:2])
    x, g = (v.double().numpy() for v in held[2:])
    h = (g - 0.5 * x).astype(held[0].numpy().dtype).astype(np.float64)
    scale = products(P, R, x, h)[[0, 2]].max()
    # Kernels subtract in double precision, PyTorch in the dtype itself: unbiased rounding.
    exact = dtype == torch.float64 or passes is HOST
    close = (
        {"rtol": 1e-12, "atol": 1e-12 * scale} if exact else {"rtol": 3e-7, "atol": 1e-4 * scale}
    )
    expected = products(P, R, x, h)
    if skip >= 0:
        expected[:, skip] = 0.0
    np.testing.assert_allclose(found[:-2].reshape(3, used), expected, **close)
    assert found[-2] == 0.0
    assert found[-1] == pytest.approx(np.abs(g).sum(), rel=1e-6)


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


@PASSES
def test_residuals_that_overflow_and_zero_gradients_are_seen(passes: Passes) -> None:
    held = window(torch.float32)
    held[2][7] = 1e38  # its residual is beyond float32 for a large centre only
    assert sums(passes, held, 0.5, 5, 2)[-2] == 0.0
    assert sums(passes, held, 50.0, 5, 2)[-2] > 0.0
    held[3].zero_()
    assert sums(passes, held, 0.5, 5, 2)[-1] == 0.0


def test_gradients_with_strides_are_copied_and_others_are_not() -> None:
    for tensor in (torch.ones(8)[::2], torch.ones(1).expand(4), torch.ones(2, 4).T):
        assert HOST.read(tensor).flags.c_contiguous
    whole = torch.ones(2, 4)
    assert np.shares_memory(HOST.read(whole), whole.numpy())
