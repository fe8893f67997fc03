"""The passes over vectors: both builds give the same bits, and what the formulas say."""

from typing import Any

import numpy as np
import pytest

from coco_denoiser.typing import Array
from tests.core.test_builds import BOTH, BUILDS

LENGTHS = (1, 2, 3, 5, 8, 31, 64, 1000, 1023, 4099)
DTYPES = (np.float32, np.float64)
LIMIT = 1e30


def vectors(d: int, dtype: Any, rows: int = 5) -> list[Array]:
    """Points, residuals, an observation; magnitudes of all sizes, zeros and minus zeros."""
    rng = np.random.default_rng(d)

    def some(*shape: int) -> Array:
        found = rng.normal(size=shape) * 10.0 ** rng.integers(-6, 7, shape)
        found[rng.random(shape) < 0.05] = -0.0
        return np.asarray(found, dtype)

    return [some(rows, d), some(rows, d), some(d), some(d)]


def everything(build: Any, d: int, dtype: Any) -> list[Array]:
    """What both passes give."""
    points, residuals, x, g = vectors(d, dtype)
    found: list[Array] = []
    for skip in (-1, 1):
        sums = np.zeros(17)
        build.measure(points, residuals, x, g, 0.7, LIMIT, skip, sums)
        found.append(sums)
    weights = np.array([0.1, 0.2, 0.3, 0.4, 0.0])
    for average in (None, (weights, 0.1, False), (weights, 0.1, True)):
        out = np.empty_like(g)
        build.commit(points, residuals, x, g, 0.7, 2, average, out)
        found += [out, points.copy(), residuals.copy()]
    return found


@BOTH
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", LENGTHS)
def test_both_builds_give_the_same_bits(d: int, dtype: Any) -> None:
    one, other = (everything(build, d, dtype) for build in BUILDS)
    for a, b in zip(one, other, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", LENGTHS)
def test_the_passes_do_what_the_formulas_say(build: Any, d: int, dtype: Any) -> None:
    given = vectors(d, dtype)
    points, residuals, x, g = (np.asarray(v, np.longdouble) for v in given)
    sums = np.zeros(17)
    build.measure(*given, 0.7, LIMIT, -1, sums)
    h = (given[3] - 0.7 * given[2].astype(np.float64)).astype(dtype).astype(np.longdouble)
    dx, dh = points - x, residuals - h
    size = np.concatenate([(dx**2).sum(1), np.abs(dx * dh).sum(1), (dh**2).sum(1)])
    expected = np.concatenate([(dx**2).sum(1), (dx * dh).sum(1), (dh**2).sum(1)])
    assert np.all(np.abs(sums[:15] - expected) <= 1e-13 * size)
    assert sums[15] == 0.0
    np.testing.assert_allclose(sums[16], np.abs(g).sum(), rtol=1e-12)
    weights, out = np.array([0.1, 0.2, 0.3, 0.3, 0.1]), np.empty_like(given[3])
    moves = (residuals - h) - np.longdouble(0.1) * (points - x)
    scale = np.abs(g) + np.abs(h) + np.abs(x) + weights @ (np.abs(residuals) + np.abs(points))
    eps = np.finfo(dtype).eps
    for merged in (True, False):  # what was in the slot takes part in it, and the average is kept
        new = [v.copy() for v in given]
        build.commit(*new, 0.7, 4, (weights, 0.1, merged), out)
        moves[4] *= merged
        theta = g + weights @ moves
        assert np.all(np.abs(out - theta) <= 4 * eps * scale + eps * np.abs(theta))
        kept = (out - 0.7 * given[2].astype(np.float64)).astype(dtype) if merged else h
        np.testing.assert_array_equal(new[0][4], given[2])
        np.testing.assert_allclose(new[1][4], kept.astype(float), rtol=4 * eps, atol=1e-8)
        for now, before in zip(new[:2], given[:2], strict=True):
            np.testing.assert_array_equal(now[:4], before[:4])


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", LENGTHS)
def test_what_is_in_a_slot_can_be_the_observation(build: Any, dtype: Any, d: int) -> None:
    """One residual is merged into another."""
    average = np.array([0.0, 0.3]), 0.2, True
    given, other, out = vectors(d, dtype), vectors(d, dtype), np.empty(d, dtype)
    build.commit(*given[:2], given[0][3], given[1][3], 0.0, 3, average, out)
    build.commit(*other[:2], other[0][3].copy(), other[1][3].copy(), 0.0, 3, average, out)
    for one, two in zip(given, other, strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(given[1], vectors(d, dtype)[1])


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0 * LIMIT])
def test_entries_that_must_not_enter_are_counted_wherever_they_stand(
    build: Any, dtype: Any, bad: float
) -> None:
    for d in (1, 7, 64, 1001):
        for place in {0, d // 2, d - 1}:
            for which in (2, 3):
                given = vectors(d, dtype)
                given[which][place] = bad
                sums = np.zeros(17)
                build.measure(*given, 0.7, LIMIT, -1, sums)
                assert sums[15] >= 1.0


@pytest.mark.parametrize("build", BUILDS)
def test_slots_and_sizes_out_of_range_are_refused(build: Any) -> None:
    given, out = vectors(6, np.float64), np.zeros(6)
    for slot, weights in ((-1, None), (5, None), (0, (np.zeros(6), 0.0, False))):
        with pytest.raises(ValueError, match="expected at most 5 slots"):
            build.commit(*given, 0.7, slot, weights, out)
    with pytest.raises(ValueError, match="expected at most 5 slots, got 6"):
        build.measure(*given, 0.7, LIMIT, -1, np.zeros(20))
    with pytest.raises(ValueError, match="expected 14 \\* 1 numbers"):
        build.measure(*given, 0.7, LIMIT, -1, np.zeros(16))
    with pytest.raises(TypeError, match="expected an array of 'd'"):
        build.commit(*given, 0.7, 0, None, out.astype(np.float32))
    with pytest.raises((ValueError, BufferError)):
        build.commit(given[0], given[1][:, ::-1], *given[2:], 0.7, 0, None, out)
    frozen = np.zeros(6)
    frozen.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        build.commit(*given, 0.7, 0, None, frozen)
