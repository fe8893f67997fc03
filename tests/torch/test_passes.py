"""The passes over the window on other devices: precision; contracts/test_stream.py has the rest."""

from typing import Any

import numpy as np
import pytest
import torch

from coco_denoiser.torch import passes

D, K = 20_048, 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("used", "skip"), [(2, 0), (6, 1), (6, -1)])
def test_every_device_sums_and_averages_as_the_core_does(
    dtype: torch.dtype, used: int, skip: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products of close points far from the origin, in double precision, a piece at a time."""
    monkeypatch.setattr(passes, "_BLOCK", 1000)
    draw = torch.Generator().manual_seed(0)
    centre = torch.randn(D, generator=draw, dtype=torch.float64)
    held = [
        (centre + 1e-3 * torch.randn(*rows, D, generator=draw, dtype=torch.float64)).to(dtype)
        for rows in ((K,), (K,), (), ())
    ]
    found = list[tuple[Any, ...]]()
    for each in (passes.HOST, passes.DEVICE):
        own, sums = [v.clone() for v in held], torch.zeros(3 * used + 2, dtype=torch.float64)
        rows, theta = [each.read(v) for v in own], torch.zeros(D, dtype=dtype)
        each.measure(*rows, 0.5, 1e37, skip, each.read(sums))
        each.commit(
            *rows, 0.5, 3, (np.array([0.1, 0.2, 0.0, 0.3, 0.4]), 0.2, True), each.read(theta)
        )
        found.append((sums.numpy(), theta, *own))
    (core, *written), (device, *others) = found
    scale, eps = core[:-2].max(), torch.finfo(dtype).eps
    # Kernels subtract in double precision, PyTorch in the dtype itself: unbiased rounding.
    rtol, atol = (3e-7, 1e-4 * scale) if dtype is torch.float32 else (1e-12, 1e-12 * scale)
    np.testing.assert_allclose(device[:-2], core[:-2], rtol, atol)
    np.testing.assert_array_equal(device[:-2] == 0.0, core[:-2] == 0.0)
    assert device[-2] == core[-2] == 0.0
    assert device[-1] == pytest.approx(core[-1], rel=1e-6)
    for mine, theirs in zip(written, others, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=8 * eps, atol=30 * eps)
