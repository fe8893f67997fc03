"""A stream equals a batch over its window at every step, and nothing bad ever enters it."""

import copy
import pickle
import re
import tracemalloc
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coco_denoiser as coco
from coco_denoiser import Cocoercive, Denoiser
from coco_denoiser._validation import LIMITS
from coco_denoiser.models.cocoercive import _start
from coco_denoiser.typing import Float64
from tests import families
from tests.windows import batches

KINDS = pytest.mark.parametrize(
    "options", [{"window": 3}, {"window": 3, "forget": "fold"}, {"window": 2, "forget": "fold"}]
)
# A plain path, to be fed to denoisers without following them.
sgd = partial(families.sgd, start=30.0)


def follow(denoiser: Denoiser, points: Any, gradients: Any, variances: Any = None) -> Float64:
    """Return the answers to a stream of observations."""
    v = np.ones(len(points)) if variances is None else variances
    given = zip(points, gradients, v, strict=True)
    return np.array([denoiser(x, g, noise_variance=n) for x, g, n in given])


def assert_same(denoiser: Denoiser, state: dict[str, Any]) -> None:
    """A denoiser is in a state that it, or another, was in."""
    for name, value in denoiser.state_dict().items():
        np.testing.assert_array_equal(value, state[name])


@pytest.mark.parametrize(
    ("window", "forget"),
    [(1, "drop"), (2, "drop"), (4, "drop"), (7, "drop"), (None, "drop"), (2, "fold"), (4, "fold")],
)
@given(
    mu=st.sampled_from([-1.0, 0.0, 1.0 / 3.0]),
    seed=st.integers(0, 2**32),
    d=st.integers(1, 12),
    step=st.sampled_from([0.7, 0.05, 1e-3]),
    changing=st.booleans(),
)
@settings(max_examples=10)
def test_streaming_equals_batch_at_every_step(
    window: int | None, forget: Any, mu: float, seed: int, d: int, step: float, changing: bool
) -> None:
    rng = np.random.default_rng(seed)
    points, gradients = sgd(rng, 12, d, step)
    v = rng.uniform(0.2, 5.0, 12) if changing else np.ones(12)
    bounds = [1.0 + (k % 3) * changing for k in range(12)]
    now = iter(bounds)
    model = Cocoercive(lambda: next(now), mu)
    denoiser = Denoiser(model=model, window=window, forget=forget)
    expected = batches(points, gradients, v, window, L=bounds, mu=mu, forget=forget)
    for x, g, n, (raw, batch) in zip(points, gradients, v, expected, strict=True):
        theta, solution = denoiser(x, g, noise_variance=n), denoiser.solution
        count = len(denoiser)
        assert (
            count == len(solution.gradients) == (len(raw) if window != 2 or forget == "drop" else 1)
        )
        assert solution.gap <= 1e-9
        assert solution.status.success
        # Both have a relative gap of at most 1e-9, so are within sqrt(2e-9) of the optimum, in
        # a norm that variances change by a factor of at most 5.
        reach = np.sqrt(2.0 * max(solution.gap, batch.gap, 1e-14))
        reach = 10.0 * reach * np.linalg.norm(batch.gradients - raw) + 1e-7
        assert np.linalg.norm(solution.gradients - batch.gradients[-count:]) <= reach
        np.testing.assert_allclose(theta, solution.gradients[-1], atol=1e-9)


@KINDS
def test_looking_at_the_solution_changes_nothing_and_it_ends_with_the_answer(
    options: dict[str, Any],
) -> None:
    quiet, looked_at = (Denoiser(L=1.0, **options) for _ in range(2))
    with pytest.raises(ValueError, match="before the first observation"):
        _ = looked_at.solution
    for x, g in zip(*sgd(np.random.default_rng(4), 9, 6), strict=True):
        theta, found = looked_at(x, g), looked_at.solution
        np.testing.assert_array_equal(quiet(x, g), theta)
        assert max(found.gap, found.violation) <= 1e-9
        assert found.gradients.shape == (len(looked_at), 6)
        np.testing.assert_allclose(found.gradients[-1], theta, atol=1e-9)
        assert found.status.success
        for again in (copy.deepcopy(looked_at), pickle.loads(pickle.dumps(looked_at))):
            np.testing.assert_array_equal(again.solution.gradients, found.gradients)
    assert found.status is coco.Status.SOLVED
    assert len(looked_at) == (1 if options["window"] == 2 else 3)


REFUSED: list[tuple[Any, Any, type[Exception], str]] = [
    ([1.0, np.nan, 0.0], [1.0, 1.0, 1.0], ValueError, "point must be finite, got nan"),
    ([1.0, 1.0, 0.0], [1.0, np.inf, 1.0], ValueError, "gradient must be finite, got inf"),
    ([1.0, 1.0], [1.0, 1.0], ValueError, r"shape of the earlier ones, \(3,\), got \(2,\)"),
    ([1.0, 1.0, 0.0], [1.0, 1.0], ValueError, r"same shape, got \(3,\) and \(2,\)"),
    ([1.0, 1.0, 0.0], ["a", "b", "c"], TypeError, "gradient must hold real numbers"),
    ([1.0, 1.0, 0.0], [1j, 0.0, 0.0], TypeError, "gradient must hold real numbers"),
    ([1e149, 0.0, 0.0], [2e150, 0.0, 0.0], ValueError, "must not exceed 1e\\+150"),
]
BAD_VARIANCES: list[Any] = [0.0, -1.0, np.nan, np.inf, np.ma.masked]


@pytest.mark.parametrize(("point", "gradient", "error", "message"), REFUSED)
@pytest.mark.parametrize("window", [2, None])
def test_a_refused_pair_leaves_the_window_as_it_was(
    point: Any, gradient: Any, error: type[Exception], message: str, window: int | None
) -> None:
    points, gradients = sgd(np.random.default_rng(3), 4, 3)
    denoiser = Denoiser(L=2.0, window=window)
    follow(denoiser, points, gradients)
    before = denoiser.state_dict()
    with pytest.raises(error, match=message):
        denoiser(point, gradient)
    for bad in BAD_VARIANCES:
        with pytest.raises((ValueError, TypeError), match="noise_variance"):
            denoiser(points[0], gradients[0], noise_variance=bad)
    assert_same(denoiser, before)


@KINDS
def test_a_refused_pair_leaves_neither_its_size_nor_its_dtype(options: dict[str, Any]) -> None:
    denoiser, ones = Denoiser(L=200.0, **options), np.ones(4, np.float32)
    with pytest.raises(ValueError, match="finite"):
        denoiser(np.full(3, np.nan), np.ones(3))
    denoiser(ones, ones)
    with pytest.raises(ValueError, match="finite"):
        denoiser(np.ones(4), np.full(4, np.nan))
    too_large = np.full(4, 1e37, np.float32)  # of the residuals, in float32
    with pytest.raises(
        ValueError, match=r"1e\+37, .* of float32 holds.*Rescale the problem, or pass float64"
    ):
        denoiser(too_large, ones)
    assert len(denoiser) == 1
    assert denoiser.state_dict()["points"].dtype == np.float32
    wide = too_large.astype(np.float64)
    denoiser(wide, ones)  # and taken
    state = denoiser.state_dict()
    assert state["points"].dtype == np.float64
    np.testing.assert_array_equal(state["points"][-1], wide)
    assert np.isfinite(state["residuals"]).all()


@pytest.mark.parametrize(("shape", "window"), [((), 4), ((5,), 1), ((2, 3), 2), ((2, 1, 4), 4)])
def test_any_shape_comes_back_and_nothing_is_aliased(shape: tuple[int, ...], window: int) -> None:
    rng, x, g = np.random.default_rng(4), np.empty(shape), np.empty(shape)
    flat, shaped = Denoiser(L=1.0, window=window), Denoiser(L=1.0, window=window)
    for k in range(9):
        x[...], g[...] = rng.normal(size=shape), 10.0 * rng.normal(size=shape)
        theta = shaped(x, g)
        assert theta.shape == shape
        frozen, strided = x.flatten(), x.flatten().repeat(2)[::2]
        frozen.flags.writeable = False
        point = (frozen, strided, frozen.tolist())[k % 3]
        np.testing.assert_array_equal(theta.reshape(-1), flat(point, g.flatten()))
        assert not np.shares_memory(theta, g)
        theta[...] = np.nan
        shaped.state_dict()["points"][:] = np.nan
    assert shaped.solution.gradients.shape == (window, *shape)


@KINDS
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
def test_the_dtype_comes_back_and_long_vectors_are_summed_block_by_block(
    dtype: type, options: dict[str, Any]
) -> None:
    rng = np.random.default_rng(4)
    x, g = (100 * rng.normal(size=(2, 7, 10_007))).astype(dtype)
    x //= 50
    narrow, wide = (Denoiser(L=1.0, **options) for _ in range(2))
    for point, gradient in zip(x, g, strict=True):
        theta = narrow(point, gradient)
        assert theta.dtype == (dtype if np.issubdtype(dtype, np.floating) else np.float64)
        expected = wide(point.astype(np.float64), gradient.astype(np.float64))
        eps = float(np.finfo(theta.dtype).eps)
        np.testing.assert_allclose(theta, expected, atol=max(500 * eps, 1e-3))
    if "forget" not in options:
        batch = coco.denoise(*(v[-3:].astype(np.float64) for v in (x, g)), L=1.0)
        np.testing.assert_allclose(expected, batch[-1], atol=1e-3)


@pytest.mark.parametrize(
    ("window", "forget", "vectors"),
    [(4, "drop", 8), (4, "fold", 8), (2, "drop", 4), (2, "fold", 2)],
)
def test_memory_is_two_vectors_an_observation_and_small_tables(
    window: int, forget: Any, vectors: int
) -> None:
    d, rng = 100_000, np.random.default_rng(9)
    Denoiser(L=1.0, window=window, forget=forget)(rng.normal(size=2), rng.normal(size=2))
    tracemalloc.start()
    try:
        denoiser = Denoiser(L=1.0, window=window, forget=forget)
        for _ in range(6):
            denoiser(rng.normal(size=d), rng.normal(size=d))
        assert tracemalloc.get_traced_memory()[0] <= 8 * vectors * d + 200_000
    finally:
        tracemalloc.stop()


def damage(name: str, **change: Any) -> Any:
    """Return a function that changes one entry of an array."""

    def changed(state: dict[str, Any]) -> dict[str, Any]:
        array = np.array(state[name])
        array[change["at"]] = change["to"]
        return {name: array}

    return changed


DAMAGED: list[tuple[Any, str]] = [
    ({"L": 3.0}, "saved with L=3.0"),
    ({"window": 9}, "saved with window=9"),
    ({"forget": "fold"}, "saved with forget=fold"),
    ({"version": 0}, "saved with version=0"),
    ({"points": np.zeros((2, 3))}, r"points must have shape \(3, 3\)"),
    ({"points": np.zeros((3, 3), np.int64)}, "points must .* float32 or float64, got .* int64"),
    ({"residuals": np.zeros((3, 3), np.float32)}, "residuals must .* dtype float64"),
    (damage("points", at=(0, 1), to=np.nan), "points must be finite"),
    (damage("residuals", at=(2, 2), to=-np.inf), "residuals must be finite"),
    ({"count": 4}, "count must be at most 3"),
    ({"count": 2.5}, "count must be an integer"),
    ({"count": 2}, "next must be an integer of at least 2|next must be at most"),
    ({"next": 100_000}, "next must be at most 2, got 100000"),
    ({"points": np.zeros((3, 2))}, r"residuals must have shape \(3, 2\)"),
    ({"points": np.zeros(())}, r"points must have shape \(3,\)"),
    ({"point_distances": np.zeros((2, 2))}, r"point_distances must have shape \(3, 3\)"),
    ({"point_distances": np.zeros((3, 3), np.float32)}, "point_distances must .* float64"),
    (damage("point_distances", at=(0, 1), to=7.0), "point_distances must be symmetric"),
    (damage("residual_distances", at=(1, 1), to=1.0), "residual_distances .* the diagonal"),
    (damage("residual_distances", at=slice(None), to=-1.0), "symmetric, and zero on the"),
    (damage("cosines", at=(0, 0), to=0.5), "cosines must be symmetric"),
    ({"cosines": 2.0 - 2.0 * np.eye(3)}, "cosines must be between -1 and 1"),
    ({"point_distances": np.eye(3) - 1.0}, "point_distances must not be negative, got -1.0"),
    ({"centre": np.inf}, "centre must be finite"),
    (damage("residual_distances", at=slice(None), to=np.nan), "residual_distances must be finite"),
    (damage("variances", at=1, to=0.0), "variances must be positive, got 0.0"),
]


@pytest.mark.parametrize(("change", "message"), DAMAGED)
def test_a_wrong_state_is_refused_and_changes_nothing(change: Any, message: str) -> None:
    denoiser = Denoiser(L=1.0, window=3)
    for x in np.eye(3):
        denoiser(x, -x)
    before = denoiser.state_dict()
    with pytest.raises(ValueError, match=message):
        denoiser.load_state_dict({**before, **(change(before) if callable(change) else change)})
    with pytest.raises(ValueError, match="lacks points"):
        denoiser.load_state_dict({name: before[name] for name in before if name != "points"})
    assert_same(denoiser, before)


def test_it_shows_its_settings_and_how_much_it_holds() -> None:
    denoiser = Denoiser(L=2.0, window=3, forget="fold")
    denoiser([1.0], [2.0])
    shown = repr(denoiser)
    for setting in ("L=2.0", "window=3", "mu=0.0", "tol=1e-09", "forget='fold'"):
        assert setting in shown
    assert shown.endswith("with 1 observations>")


@pytest.mark.parametrize("forget", ["drop", "fold"])
def test_algorithm_1_agrees_with_the_default_also_when_it_is_restored(forget: Any) -> None:
    rng = np.random.default_rng(0)
    points, gradients = sgd(rng, 14, 5)
    paper = Denoiser(model=Cocoercive(1.0, method="fdpg"), window=6, forget=forget)
    default = Denoiser(L=1.0, window=6, forget=forget)
    restored = Denoiser(model=Cocoercive(1.0, method="fdpg"), window=6, forget=forget)
    for x, g, v in zip(points, gradients, rng.uniform(0.5, 2.0, 14), strict=True):
        restored.load_state_dict(paper.state_dict())  # which has no warm start
        expected = default(x, g, noise_variance=v)
        for denoiser in (paper, restored):
            np.testing.assert_allclose(denoiser(x, g, noise_variance=v), expected, atol=1e-3)
    assert paper.solution.method == "fdpg"
    assert paper.solution.gap <= 1e-9


def test_its_warm_start_takes_fewer_iterations_than_a_cold_one() -> None:
    denoiser = Denoiser(model=Cocoercive(1.0, method="fdpg", tol=1e-2), window=20)
    model: Any = denoiser._model
    warm = cold = 0
    for x, g in zip(*sgd(np.random.default_rng(0), 50, 10, 0.1, sigma=10.0), strict=True):
        denoiser(x, g)
        if len(denoiser) == 20:
            estimate = denoiser._stream.estimate
            assert estimate is not None
            anew = model.estimate(denoiser._stream.window, denoiser._stream.limits)
            warm, cold = warm + estimate.iterations, cold + anew.iterations
    assert 0 < warm < 0.9 * cold
    window = denoiser._stream.window
    start = _start(np.ones((20, 20)), window)  # what was in the slot of the newest is gone
    assert start.any(axis=1).tolist() == (np.arange(20) != window.newest).tolist()


@pytest.mark.parametrize("forget", ["drop", "fold"])
def test_a_collinear_stream_is_saved_and_restored(forget: Any) -> None:
    """Its cosines are 1, and not a rounding more, in one compiled call and in passes."""
    denoiser, restored = (Denoiser(L=1.0, window=8, forget=forget) for _ in range(2))
    direction = np.random.default_rng(0).normal(size=50)
    for step in np.linspace(0.1, 1.0, 12):
        denoiser(step * direction, 0.7 * step * direction)
    restored.load_state_dict(denoiser.state_dict())
    assert len(restored) == 8


@pytest.mark.parametrize("options", [*KINDS.args[1], {"model": coco.Gaussian(1e-30)}])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_numbers_leave_room_for_their_differences(
    dtype: Any, options: dict[str, Any]
) -> None:
    denoiser = Denoiser(**{"model": Cocoercive(1e-30)} | options)
    x = np.ones(3, dtype)
    denoiser(x, x)
    largest = dtype(LIMITS[np.dtype(dtype)])
    for sign in (1, -1, 1, -1, 1):
        theta = denoiser(sign * largest * x, -sign * largest * x)
        assert np.isfinite(theta).all()
        state = denoiser.state_dict()
        for name in ("residuals", "point_distances", "residual_distances", "cosines"):
            assert np.isfinite(state[name]).all()
    too_large = np.nextafter(largest, dtype(np.inf)) * x
    for bad in ((x, too_large), (-too_large, x), (too_large, -too_large)):
        with pytest.raises(ValueError, match=re.escape(f"must not exceed {largest:.0e}")):
            denoiser(*bad)


@KINDS
@pytest.mark.parametrize("unit", [2.0**-560, 2.0**480])  # whose squares are not normal numbers
@pytest.mark.parametrize("d", [2, 9])
def test_the_unit_of_the_numbers_does_not_matter(
    d: int, unit: float, options: dict[str, Any]
) -> None:
    large, small = Denoiser(L=1.0, **options), Denoiser(L=1.0, **options)
    for x, g in zip(*sgd(np.random.default_rng(2), 12, d, 0.3), strict=True):
        theta = large(x, g)
        np.testing.assert_allclose(small(unit * x, unit * g) / unit, theta, rtol=1e-6)
        assert small.solution.status is large.solution.status
    assert not np.allclose(theta, g, rtol=1e-3)


def test_bounds_that_change_by_much_cost_no_digits() -> None:
    """In float32, residuals at the first bound would have lost the gradients."""
    bounds = iter([1e9, 1.0, 1.0, 1.0])
    denoiser = Denoiser(L=lambda: next(bounds), window=3)
    points, gradients = (v.astype(np.float32) for v in sgd(np.random.default_rng(0), 4, 6))
    theta = follow(denoiser, points, gradients)[-1]
    np.testing.assert_allclose(theta, coco.denoise(points[1:], gradients[1:], L=1.0)[-1], atol=1e-3)
