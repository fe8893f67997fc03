"""The passes over the window: exact sums, and the same on every device's path."""

from typing import Any

import numpy as np
import pytest
import torch

from coco_denoiser.torch import _generic, _kernels
from coco_denoiser.window.history import Merger, Plan

SIZES = (1, 20_000, 0, 37)
WIDTH = 20_048  # with gaps, as a ring has them
K = 6
LAYOUT = _kernels.layout([0, 1, 20_001, 20_005], SIZES, WIDTH)
PARTS = LAYOUT[1:, :-1].T.tolist()
LIMIT = 3.4e38
PASSES = pytest.mark.parametrize("passes", [_kernels, _generic])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def flat(tensors: list[Any], dtype: torch.dtype) -> torch.Tensor:
    """Return tensors as they lie in a slot."""
    row = torch.zeros(WIDTH, dtype=dtype)
    for t, (offset, size) in zip(tensors, PARTS, strict=True):
        row[offset : offset + size] = t
    return row


def window(dtype: torch.dtype, *, spread: float = 1.0) -> tuple[Any, ...]:
    """Return rings of close points far from the origin, and one observation."""
    draw = torch.Generator().manual_seed(0)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=draw, dtype=torch.float64)

    def tensors() -> list[torch.Tensor]:
        return [(centre[o : o + n] + spread * normal(n)).to(dtype) for o, n in PARTS]

    centre = normal(WIDTH)
    points, residuals = (torch.stack([flat(tensors(), dtype) for _ in range(K)]) for _ in range(2))
    return points, residuals, tensors(), tensors()


def measure(passes: Any, *held: Any, plan: Plan, centre: float = 0.5) -> Any:
    points, residuals, x, g = held
    new = (passes.hold(v, LAYOUT) for v in (x, g))
    rings = passes.view(points), passes.view(residuals)
    found = passes.measure((*rings, *new), centre=centre, limit=LIMIT, plan=plan)
    return np.asarray(found)


def products(points: Any, residuals: Any, x: Any, h: Any) -> Any:
    """Return ||dx||^2, <dx, dh> and ||dh||^2, (3, K)."""
    dx, dh = points - x, residuals - h
    return np.stack([(dx * dx).sum(1), (dx * dh).sum(1), (dh * dh).sum(1)])


@PASSES
@DTYPES
@pytest.mark.parametrize("spread", [1.0, 1e-3])
@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize(("used", "skip"), [(2, 0), (4, 2), (5, 4), (6, 1)])
def test_products_are_summed_in_double_precision(
    passes: Any, dtype: torch.dtype, spread: float, merged: bool, used: int, skip: int
) -> None:
    held = window(dtype, spread=spread)
    heir = (skip + 1) % used
    plan = Plan(used, skip, heir, Merger(0.3, 1.0), 0.25) if merged else Plan(used, skip)
    found = measure(passes, *held, plan=plan)
    P, R = (ring.double().numpy()[:used] for ring in held[:2])
    x, g = (flat(v, dtype).double().numpy() for v in held[2:])
    h = (g - 0.5 * x).astype(held[0].numpy().dtype).astype(np.float64)
    if merged:
        R[heir] += 0.3 * ((R[skip] - R[heir]) - 0.25 * (P[skip] - P[heir]))
    scale = products(P, R, x, h)[[0, 2]].max()
    # Kernels subtract in double precision, PyTorch in the dtype itself: unbiased rounding. What
    # is mixed is rounded to the dtype either way.
    exact = dtype == torch.float64 or (passes is _kernels and not merged)
    close = (
        {"rtol": 1e-12, "atol": 1e-12 * scale} if exact else {"rtol": 3e-7, "atol": 1e-4 * scale}
    )
    targets = [(x, h), (P[heir], R[heir])] if merged else [(x, h)]
    assert found.size == 3 * used * len(targets) + 2
    for sums, target in zip(found[:-2].reshape(-1, 3, used), targets, strict=True):
        expected = products(P, R, *target)
        expected[:, skip] = 0.0
        np.testing.assert_allclose(sums, expected, **close)
    assert found[-2] == 0.0
    assert found[-1] == pytest.approx(np.abs(g).sum(), rel=1e-6)


@PASSES
@pytest.mark.parametrize("where", ["x", "g"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_seen_and_nothing_is_written(
    passes: Any, where: str, value: float
) -> None:
    points, residuals, x, g = window(torch.float32)
    before = points.clone(), residuals.clone()
    {"x": x, "g": g}[where][1][12_345] = value
    for centre in (0.0, 0.5):
        found = measure(passes, points, residuals, x, g, plan=Plan(5, 2), centre=centre)
        assert found[-2] > 0.0
    assert torch.equal(points, before[0])
    assert torch.equal(residuals, before[1])


@PASSES
def test_what_the_dtype_cannot_hold_is_seen(passes: Any) -> None:
    points, residuals, x, g = window(torch.float32)
    x[1][7] = 1e38
    assert measure(passes, points, residuals, x, g, plan=Plan(5, 2))[-2] == 0.0
    assert measure(passes, points, residuals, x, g, plan=Plan(5, 2), centre=50.0)[-2] > 0.0


@PASSES
def test_zero_gradients_are_seen(passes: Any) -> None:
    points, residuals, x, g = window(torch.float32)
    zeros = [torch.zeros_like(t) for t in g]
    assert measure(passes, points, residuals, x, zeros, plan=Plan(5, 2))[-1] == 0.0


@PASSES
@DTYPES
@pytest.mark.parametrize("count", [3, 4, 5])
@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_commit_writes_the_slot_and_the_weighted_sum(
    passes: Any, dtype: torch.dtype, count: int, shift: float
) -> None:
    points, residuals, x, g = window(dtype)
    # Only the slots in use have weights; some models have negative ones.
    weights = np.array([0.1, -0.2, 0.5, 0.2, 0.2])[:count]
    weights /= weights.sum()
    others = [0, 1, 3, 4, 5]
    before = points[others].clone(), residuals[others].clone()
    out = torch.zeros(WIDTH, dtype=dtype)
    new = [passes.hold(v, LAYOUT) for v in (x, g)]
    passes.commit(
        (passes.view(points), passes.view(residuals), *new),
        centre=0.5,
        slot=2,
        weights=weights,
        shift=shift,
        out=passes.view(out),
    )
    X, G = flat(x, dtype), flat(g, dtype)
    accuracy = 1e-5 if dtype == torch.float32 else 1e-12
    assert torch.equal(points[2], X)
    torch.testing.assert_close(residuals[2], G - 0.5 * X, rtol=accuracy, atol=accuracy)
    assert torch.equal(points[others], before[0])
    assert torch.equal(residuals[others], before[1])
    h = (residuals - shift * points).double()
    expected = G.double() + torch.from_numpy(weights) @ h[:count] - h[2]
    torch.testing.assert_close(out.double(), expected, rtol=accuracy, atol=accuracy)


@PASSES
@DTYPES
@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_advance_mixes_the_slot_into_the_observation(
    passes: Any, dtype: torch.dtype, shift: float
) -> None:
    points, residuals, x, g = window(dtype)
    old = (residuals[0] - shift * points[0]).double()
    out = torch.zeros(WIDTH, dtype=dtype)
    new = [passes.hold(v, LAYOUT) for v in (x, g)]
    rings = passes.view(points[:1]), passes.view(residuals[:1])
    passes.advance((*rings, *new), centre=0.5, weight=0.3, shift=shift, out=passes.view(out))
    X, G = flat(x, dtype), flat(g, dtype)
    h = (G - 0.5 * X).double()
    move = 0.3 * (old - (h - shift * X.double()))
    accuracy = 1e-5 if dtype == torch.float32 else 1e-12
    assert torch.equal(points[0], X)
    for found, expected in ((residuals[0], h + move), (out, G.double() + move)):
        torch.testing.assert_close(found.double(), expected, rtol=accuracy, atol=accuracy)
