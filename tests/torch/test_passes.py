"""The two passes over the window: exact sums, and the same on every device's path."""

from typing import Any

import numpy as np
import pytest
import torch

from coco_denoiser.torch import _generic, _kernels

SIZES = (1, 20_000, 0, 37)
K = 5


def window(dtype: torch.dtype, *, spread: float) -> tuple[Any, ...]:
    """Return rings of close points far from the origin, and one observation without a gradient."""
    draw = torch.Generator().manual_seed(0)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=draw, dtype=torch.float64)

    width = sum(SIZES)
    centre = normal(width)
    points, residuals = (centre + spread * normal(K, width) for _ in range(2))
    x, g = (torch.split(centre + spread * normal(width), list(SIZES)) for _ in range(2))
    return (
        points.to(dtype),
        residuals.to(dtype),
        [t.to(dtype) for t in x],
        [*(t.to(dtype) for t in g[:3]), None],
    )


LAYOUT: dict[str, Any] = {
    "offsets": np.cumsum([0, *SIZES[:-1]]),
    "sizes": np.array(SIZES),
}


@pytest.mark.parametrize("passes", [_kernels, _generic])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_distances_are_summed_in_double_precision(
    passes: Any, dtype: torch.dtype, spread: float
) -> None:
    points, residuals, x, g = window(dtype, spread=spread)
    shares = np.array([1.0, 0.5, 1.0, 0.25])
    found = passes.measure(
        points,
        residuals,
        passes.hold(x),
        passes.hold(g),
        **LAYOUT,
        shares=shares,
        centre=0.5,
        count=4,
        skip=2,
    ).numpy()
    counted = np.repeat(shares, SIZES)
    dense = [t if t is not None else torch.zeros(SIZES[-1], dtype=dtype) for t in g]
    new_x, new_g = torch.cat(x).numpy(), torch.cat(dense).numpy()
    new_h = (new_g - 0.5 * new_x.astype(np.float64)).astype(new_x.dtype)
    # Kernels subtract in double precision, PyTorch in the dtype itself: unbiased rounding.
    accuracy = 1e-12 if passes is _kernels or dtype == torch.float64 else 1e-7
    for ring, new, row in ((points, new_x, found[:K]), (residuals, new_h, found[K : 2 * K])):
        differences = ring.numpy().astype(np.float64) - new.astype(np.float64)
        expected = (counted * differences**2).sum(axis=1)
        expected[[2, 4]] = 0.0
        np.testing.assert_allclose(row, expected, rtol=accuracy)
    assert found[2 * K] == 0.0
    assert found[2 * K + 1] > 0.0


@pytest.mark.parametrize("passes", [_kernels, _generic])
@pytest.mark.parametrize("where", ["x", "g"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_seen_and_nothing_is_written(
    passes: Any, where: str, value: float
) -> None:
    points, residuals, x, g = window(torch.float32, spread=1.0)
    before = points.clone(), residuals.clone()
    {"x": x, "g": g}[where][1][12_345] = value
    for centre in (0.0, 0.5):
        found = passes.measure(
            points,
            residuals,
            passes.hold(x),
            passes.hold(g),
            **LAYOUT,
            shares=np.ones(4),
            centre=centre,
            count=5,
            skip=2,
        )
        assert not bool(torch.isfinite(found[2 * K]))
    assert torch.equal(points, before[0])
    assert torch.equal(residuals, before[1])


@pytest.mark.parametrize("passes", [_kernels, _generic])
def test_zero_gradients_are_seen(passes: Any) -> None:
    points, residuals, x, g = window(torch.float32, spread=1.0)
    zeros = [None if t is None else torch.zeros_like(t) for t in g]
    found = passes.measure(
        points,
        residuals,
        passes.hold(x),
        passes.hold(zeros),
        **LAYOUT,
        shares=np.ones(4),
        centre=0.5,
        count=5,
        skip=2,
    )
    assert float(found[2 * K + 1]) == 0.0


@pytest.mark.parametrize("passes", [_kernels, _generic])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [3, 4, 5])
def test_commit_writes_the_slot_and_the_weighted_sum(
    passes: Any, dtype: torch.dtype, count: int
) -> None:
    points, residuals, x, g = window(dtype, spread=1.0)
    # Only the slots in use have weights.
    weights = np.array([0.1, 0.0, 0.5, 0.2, 0.2])[:count]
    weights /= weights.sum()
    others = [0, 1, 3, 4]
    before = points[others].clone(), residuals[others].clone()
    out = torch.empty(sum(SIZES), dtype=dtype)
    passes.commit(
        points,
        residuals,
        passes.hold(x),
        passes.hold(g),
        **LAYOUT,
        centre=0.5,
        slot=2,
        weights=weights,
        out=out,
    )
    dense = torch.cat([t if t is not None else torch.zeros(SIZES[-1], dtype=dtype) for t in g])
    accuracy = 1e-5 if dtype == torch.float32 else 1e-12
    assert torch.equal(points[2], torch.cat(x))
    torch.testing.assert_close(
        residuals[2], dense - 0.5 * torch.cat(x), rtol=accuracy, atol=accuracy
    )
    assert torch.equal(points[others], before[0])
    assert torch.equal(residuals[others], before[1])
    expected = dense.double() + torch.from_numpy(weights) @ residuals[:count].double()
    expected = expected - residuals[2].double()
    torch.testing.assert_close(out.double(), expected, rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize("passes", [_kernels, _generic])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_advance_mixes_the_slot_into_the_observation(passes: Any, dtype: torch.dtype) -> None:
    points, residuals, x, g = window(dtype, spread=1.0)
    old = residuals[0].double().clone()
    out = torch.empty(sum(SIZES), dtype=dtype)
    passes.advance(
        points[:1],
        residuals[:1],
        passes.hold(x),
        passes.hold(g),
        **LAYOUT,
        centre=0.5,
        weight=0.3,
        out=out,
    )
    dense = torch.cat([t if t is not None else torch.zeros(SIZES[-1], dtype=dtype) for t in g])
    new = (dense - 0.5 * torch.cat(x)).double()
    accuracy = 1e-5 if dtype == torch.float32 else 1e-12
    assert torch.equal(points[0], torch.cat(x))
    for found, expected in (
        (residuals[0], 0.7 * new + 0.3 * old),
        (out, dense.double() + 0.3 * (old - new)),
    ):
        torch.testing.assert_close(found.double(), expected, rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize("passes", [_kernels, _generic])
def test_no_slot_is_left_out_if_none_is_named(passes: Any) -> None:
    points, residuals, x, g = window(torch.float64, spread=1.0)
    rows = [
        passes.measure(
            points,
            residuals,
            passes.hold(x),
            passes.hold(g),
            **LAYOUT,
            shares=np.ones(4),
            centre=0.5,
            count=K,
            skip=skip,
        )[: 2 * K].view(2, K)
        for skip in (-1, K - 1)
    ]
    assert bool((rows[0] > 0.0).all())
    assert torch.equal(rows[0][:, :-1], rows[1][:, :-1])
    assert bool((rows[1][:, -1] == 0.0).all())
