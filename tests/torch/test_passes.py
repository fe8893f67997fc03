"""The passes over the window: exact sums, and the same on every device's path."""

from typing import Any

import numpy as np
import pytest
import torch

from coco_denoiser.torch.vectors import DeviceRing, HostRing
from coco_denoiser.window import Plan

D, K = 20_048, 6
LIMIT = 3.4e38
RINGS = pytest.mark.parametrize("ring", [HostRing, DeviceRing])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def window(dtype: torch.dtype, spread: float = 1.0) -> list[torch.Tensor]:
    """Return points and residuals, close and far from the origin, and one observation."""
    draw = torch.Generator().manual_seed(0)
    centre = torch.randn(D, generator=draw, dtype=torch.float64)
    return [
        (centre + spread * torch.randn(*rows, D, generator=draw, dtype=torch.float64)).to(dtype)
        for rows in ((K,), (K,), (), ())
    ]


def sums(ring: Any, held: list[torch.Tensor], plan: Plan) -> Any:
    points, residuals, *new = held
    return np.asarray(ring(points, residuals).products(*map(ring.read, new), LIMIT, plan))


def products(points: Any, residuals: Any, x: Any, h: Any) -> Any:
    """Return ||dx||^2, <dx, dh> and ||dh||^2, (3, K)."""
    dx, dh = points - x, residuals - h
    return np.stack([(dx * dx).sum(1), (dx * dh).sum(1), (dh * dh).sum(1)])


@RINGS
@DTYPES
@pytest.mark.parametrize(
    ("merged", "used", "oldest"), [(False, 2, 0), (False, 6, 1), (True, 2, 0), (True, 5, 4)]
)
def test_products_are_summed_in_double_precision(
    ring: Any, dtype: torch.dtype, merged: bool, used: int, oldest: int
) -> None:
    held = window(dtype, spread=1e-3)
    successor = (oldest + 1) % used
    plan = Plan(0.5, used, oldest, *((successor, 0.3, 0.25) if merged else ()))
    found = sums(ring, held, plan)
    P, R = (v.double().numpy()[:used] for v in held[:2])
    x, g = (v.double().numpy() for v in held[2:])
    h = (g - 0.5 * x).astype(held[0].numpy().dtype).astype(np.float64)
    if merged:
        R[successor] += 0.3 * ((R[oldest] - R[successor]) - 0.25 * (P[oldest] - P[successor]))
    scale = products(P, R, x, h)[[0, 2]].max()
    # Kernels subtract in double precision, PyTorch in the dtype itself: unbiased rounding. What
    # is mixed is rounded to the dtype either way.
    exact = dtype == torch.float64 or (ring is HostRing and not merged)
    close = (
        {"rtol": 1e-12, "atol": 1e-12 * scale} if exact else {"rtol": 3e-7, "atol": 1e-4 * scale}
    )
    targets = [(x, h), (P[successor], R[successor])] if merged else [(x, h)]
    assert found.size == 3 * used * len(targets) + 2
    for each, target in zip(found[:-2].reshape(-1, 3, used), targets, strict=True):
        expected = products(P, R, *target)
        expected[:, oldest] = 0.0
        np.testing.assert_allclose(each, expected, **close)
    assert found[-2] == 0.0
    assert found[-1] == pytest.approx(np.abs(g).sum(), rel=1e-6)


@RINGS
def test_residuals_that_overflow_and_zero_gradients_are_seen(ring: Any) -> None:
    held = window(torch.float32)
    held[2][7] = 1e38  # its residual is beyond float32 for a large centre only
    assert sums(ring, held, Plan(0.5, 5, 2))[-2] == 0.0
    assert sums(ring, held, Plan(50.0, 5, 2))[-2] > 0.0
    held[3].zero_()
    assert sums(ring, held, Plan(0.5, 5, 2))[-1] == 0.0


def test_gradients_with_strides_are_copied_and_others_are_not() -> None:
    for tensor in (torch.ones(8)[::2], torch.ones(1).expand(4), torch.ones(2, 4).T):
        assert HostRing.read(tensor).flags.c_contiguous
    whole = torch.ones(2, 4)
    assert np.shares_memory(HostRing.read(whole), whole.numpy())
