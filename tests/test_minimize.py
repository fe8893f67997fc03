"""minimize(): laws of the answer, of what it tells, and of what goes wrong on the way."""

import itertools
import pickle
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser import path, regression
from coco_denoiser.paper.optimizers import SGD, run, soft_threshold
from coco_denoiser.path import Project, Prox
from coco_denoiser.typing import Float64

CURVATURE, X0 = np.array([1.0, 0.7, 0.3]), np.full(3, 10.0)
Gradient = Callable[[Float64], Float64]


def noisy(
    seed: int = 0, noise: float = 1.0, curvature: Float64 = CURVATURE, minimum: Any = 0.0
) -> Gradient:
    rng = np.random.default_rng(seed)
    return lambda x: curvature * (x - minimum) + noise * rng.normal(size=x.shape)


def excess(x: Float64, curvature: Float64 = CURVATURE) -> float:
    return float(0.5 * curvature @ x**2)


def lasso(weight: float) -> Prox:
    return lambda x, step: soft_threshold(x, weight * step)


def mean_excess(make: Callable[[int], Gradient], runs: int, calls: int, **options: Any) -> float:
    x0, curvature = options.pop("x0", X0), options.pop("curvature", CURVATURE)
    found = (coco.minimize(make(seed), x0, calls, **options).x for seed in range(runs))
    return float(np.mean([excess(x, curvature) for x in found]))


def tail_average(make: Callable[[int], Gradient], runs: int, x0: Float64, at: float = 0.0) -> float:
    """Mean excess of the average of the second half of 200 steps of SGD at 1/L = 1."""
    paths = (run(SGD(1.0), make(seed), x0, steps=200) for seed in range(runs))
    return float(np.mean([excess(path[101:].mean(axis=0) - at) for path in paths]))


def test_points_from_before_noise_fell_are_left_out() -> None:
    def falling(seed: int) -> Gradient:
        calls = iter([noisy(seed, 100.0)] * 140 + [noisy(seed, 1.0)] * 200)
        return lambda x: np.asarray(next(calls)(x))

    results = [coco.minimize(falling(seed), np.full(3, 100.0), 200) for seed in range(20)]
    begins = [result._path.average()[0] for result in results]
    assert np.mean(np.array(begins) >= 140) >= 0.9


def test_a_path_that_arrives_early_is_averaged_for_longer() -> None:
    assert mean_excess(noisy, 40, 200) < 0.8 * tail_average(noisy, 40, X0)


def test_points_that_still_travel_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    curvature = np.array([1.0, 0.02])
    monkeypatch.setattr(regression, "_FEWEST", 10**6)  # the average, not the fit

    def end() -> float:
        make = partial(noisy, noise=1.0, curvature=curvature)
        return mean_excess(make, 20, 200, x0=[30.0, 30.0], curvature=curvature)

    chosen = end()
    monkeypatch.setattr(path, "_TRAVEL", 0.0)
    assert chosen < 0.9 * end()


def test_noise_moves_the_path_less_where_curvature_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An implicit step shrinks like 1 / sqrt(calls) there; a plain one as far as DoG's does."""
    curvature = np.array([1.0, 0.02])

    def scatter() -> float:
        ends = [coco.minimize(noisy(s, 3.0, curvature), [1.0, 100.0], 300) for s in range(20)]
        return float(np.sqrt(np.mean([end._path.point[0] ** 2 for end in ends])))

    implicit = scatter()
    monkeypatch.setattr(path, "_LARGEST", 0)
    assert implicit < 0.7 * scatter()


@pytest.mark.parametrize(
    "minimum",
    [lambda k: 30.0 * (k >= 160), lambda k: 0.15 * k, lambda k: 30.0 * np.exp(-k / 60)],
    ids=["jumps", "drifts", "settles"],
)
def test_what_was_seen_before_the_minimum_moved_is_left_out_and_no_fit_is_trusted(
    monkeypatch: pytest.MonkeyPatch, minimum: Callable[[int], float]
) -> None:
    def moving(seed: int) -> Gradient:
        gradient, calls = noisy(seed, 5.0), itertools.count()
        return lambda x: gradient(x - minimum(next(calls)))

    def ends() -> list[coco.MinimizeResult]:
        return [coco.minimize(moving(seed), X0, 200) for seed in range(20)]

    found, last = ends(), minimum(199)
    assert all(np.isnan(result.std).all() for result in found)
    ours = np.mean([excess(result.x - last) for result in found])
    assert ours < 1.2 * tail_average(moving, 20, X0, last)
    monkeypatch.setattr(regression, "_FEWEST", 10**6)
    assert all(np.array_equal(a.x, b.x) for a, b in zip(found, ends(), strict=True))


@pytest.mark.parametrize("stretch", [1e-4, 1e4])
def test_without_a_bound_it_is_sane_however_far_the_minimum(stretch: float) -> None:
    # It is 17 * stretch away, and x0 of length 17 says nothing about that.
    ends = []
    for seed in range(8):
        same = noisy(seed)
        result = coco.minimize(lambda x, f=same: f(10.0 + (x - 10.0) / stretch), X0, 1000)
        ends.append(excess(10.0 + (result.x - X0) / stretch))
    assert np.mean(ends) < 0.02 * excess(X0)


def test_the_error_of_the_gradient_is_as_large_as_it_says() -> None:
    results = [coco.minimize(noisy(seed), X0, 300) for seed in range(40)]
    fitted = [result for result in results if np.isfinite(result.std).all()]
    assert len(fitted) > 20
    errors = [(result.grad - CURVATURE * result.x) / result.std for result in fitted]
    assert np.mean(np.abs(errors) < 1.96) > 0.95
    assert 0.4 < np.sqrt(np.mean(np.square(errors))) < 1.0  # it also counts what two fits differ by


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_units_do_not_matter(scale: float) -> None:
    one, same = coco.minimize(noisy(), X0, 100), noisy()
    other = coco.minimize(lambda x: scale * same(x / scale), scale * X0, 100)
    assert np.allclose(other.x, scale * one.x, rtol=1e-6)
    np.testing.assert_allclose(other.std, scale * one.std, rtol=1e-6)


def test_noise_before_a_proximal_map_does_not_bias_the_answer() -> None:
    minimum = np.array([8.0, 6.0, 1.0, -1.0, 0.0, 0.3])
    exact = soft_threshold(minimum, 3.0)
    for seed in range(5):
        gradient = noisy(seed, 1.0, np.ones(6), minimum)
        result = coco.minimize(gradient, np.ones(6), 400, prox=lasso(3.0))
        assert np.array_equal(result.x != 0.0, exact != 0.0)  # SGD's average has no zeros
        assert np.allclose(result.x, exact, atol=0.3)
        assert result.success
        assert (np.abs(result.grad) > 5.0 * result.std).any()  # but the gradient mapping is not


def test_momentum_leaves_the_solution_of_a_penalty_where_it_is() -> None:
    curvature, minimum = np.array([1.0, 0.02]), np.array([1.0, 50.0])
    gradient = noisy(0, 0.0, curvature, minimum)
    result = coco.minimize(gradient, [5.0, 1.0], 2000, prox=lasso(0.1))
    assert np.allclose(result.x, [0.9, 45.0], atol=1e-6)


def test_a_projection_keeps_shape_budget_and_state() -> None:
    asked: list[Float64] = []

    def gradient(x: Float64, rng: np.random.Generator) -> Float64:
        asked.append(x)
        return x - 0.5 + rng.normal(size=(2, 2))

    def solve(calls: int, resume: coco.MinimizeResult | None = None) -> coco.MinimizeResult:
        rng, x0 = np.random.default_rng(3), np.full((2, 2), 4.0)
        project = lambda x: np.maximum(x, 1.0)  # noqa: E731
        return coco.minimize(gradient, x0, calls, rng=rng, resume=resume, project=project)

    first = solve(90)
    assert first.nfev == len(asked) == 90
    assert np.array_equal(first.x, np.ones((2, 2)))
    assert solve(50, pickle.loads(pickle.dumps(first))).nfev == 140
    assert min(x.min() for x in asked) == 1.0
    with pytest.raises(TypeError, match="rng must be"):
        coco.minimize(gradient, np.ones((2, 2)), 50)


def test_going_on_keeps_the_constraint() -> None:
    def above(least: float) -> Project:
        return lambda x: np.maximum(x, least)

    def asked_of(x: Float64) -> Float64:
        asked.append(x)
        return free(x)

    asked, free = list[Float64](), noisy()
    first = coco.minimize(free, X0, 90, project=above(1.0))
    assert first.x.min() == 1.0
    assert coco.minimize(free, X0, 50, resume=first).x.min() == 1.0
    # A function cannot be saved in general: it has to be passed again, and is asked for.
    saved = pickle.loads(pickle.dumps(first))
    with pytest.raises(ValueError, match="project or prox must be passed again"):
        coco.minimize(free, X0, 50, resume=saved)
    assert coco.minimize(free, X0, 50, resume=saved, project=above(2.0)).x.min() == 2.0
    # A new one holds from the next step: the first point is where the other run ended.
    result = coco.minimize(asked_of, X0, 50, resume=coco.minimize(free, X0, 90), project=above(1.0))
    assert result.x.min() == min(x.min() for x in asked[1:]) == 1.0


def test_an_interrupted_run_goes_on_as_if_nothing_had_happened() -> None:
    whole = coco.minimize(noisy(), X0, 200)
    gradient, calls = noisy(), itertools.count(1)

    def failing(x: Float64) -> Float64:
        if next(calls) > 80:
            raise ConnectionError("no answer")
        return gradient(x)

    words = r"call 81 failed: ConnectionError: no answer\. The error"
    with pytest.raises(coco.MinimizeError, match=words) as caught:
        coco.minimize(failing, X0, 200)
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert np.isfinite(caught.value.result.grad).all()
    for _ in "12":  # a result can be gone on from more than once
        later = noisy()
        for _ in range(80):
            later(np.zeros(3))
        again = coco.minimize(later, X0, 120, resume=caught.value.result)
        assert again.nfev == 201  # one failed
        assert np.array_equal(again.x, whole.x)
        assert np.array_equal(again.grad, whole.grad)


def test_a_gradient_that_is_not_finite_ends_with_the_best_point_so_far() -> None:
    gradient, calls = noisy(), itertools.count(1)
    with pytest.raises(coco.MinimizeError, match=r"call 60 .* must be finite") as caught:
        coco.minimize(lambda x: x * np.nan if next(calls) == 60 else gradient(x), X0, 100)
    assert excess(caught.value.result.x) < 0.1 * excess(X0)
    with pytest.raises(coco.MinimizeError, match="call 1 failed") as caught:
        coco.minimize(lambda x: x * np.nan, X0, 100, project=lambda x: np.minimum(x, 1.0))
    assert np.array_equal(caught.value.result.x, np.ones(3))
    assert np.isnan(caught.value.result.grad).all()


def test_the_callback_can_end_the_run_and_sees_a_path_that_no_budget_changes() -> None:
    answers: list[Float64] = []

    def stop(x: Float64, calls: int) -> bool:
        answers.append(x.copy())
        assert calls == len(answers)
        return calls == 600

    result = coco.minimize(noisy(), X0, 700, callback=stop)
    assert result.nfev == 600
    assert not result.success
    assert result.message == "the callback ended it after 600 calls."
    for calls in (2, 9, 100, 300):
        found = coco.minimize(noisy(), X0, calls).x
        assert np.array_equal(found, answers[calls - 1])


def test_progress_is_shown_a_few_times_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    coco.minimize(noisy(), X0, 20)
    assert capsys.readouterr().err == ""
    begun = time.monotonic()
    result = coco.minimize(noisy(), X0, 200, progress=True)
    printed = capsys.readouterr().err.split("\r")[1:]
    assert len(printed) <= 2 + (time.monotonic() - begun) / 0.2
    length, error = np.linalg.norm(result.grad), np.linalg.norm(result.std)
    assert printed[-1].rstrip() == (
        f"minimize: 200 of 200 calls, |gradient| {length:.3g} ± {error:.2g}"
    )


def test_the_result_has_scipys_names_and_a_history_for_a_plot() -> None:
    asked: list[float] = []
    gradient = noisy()

    def watched(x: Float64) -> Float64:
        g = gradient(x)
        asked.append(float(np.linalg.norm(g)))
        return g

    result = coco.minimize(watched, X0, 300)
    assert result.success
    assert result.message == "used all 300 calls; the gradient is within its standard error."
    np.testing.assert_allclose(result.history, asked)
    names = [line.split(":")[0].strip() for line in repr(result).splitlines()]
    assert names == ["message", "success", "nfev", "x", "grad", "std"]
    early = coco.minimize(noisy(), X0, 6)
    assert "the error of the gradient is not known" in early.message
    assert np.isnan(early.std).all()
    assert not early.success


@pytest.mark.parametrize("calls", [35, 60, 500])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_without_curvature_and_noise_it_goes_no_further_than_the_path(d: int, calls: int) -> None:
    """Nothing then shortens Newton's step, nor tells its error; warnings are errors here."""
    x0 = np.full(d, 2.0)
    for slope in (1.0, -1.0):
        result = coco.minimize(lambda x, g=slope: g + 0.0 * x, x0, calls)
        assert np.abs(result.x).max() <= 2.0 * np.abs(result._path.point).max()
        assert np.isnan(result.std).all()
    for maximum in (lambda x: -(x**3), lambda x: -1.0 + 0.0 * x):
        result = coco.minimize(
            maximum, x0, calls, project=lambda x: x / max(1.0, float(np.linalg.norm(x)))
        )
        np.testing.assert_allclose(result.x, x0 / np.linalg.norm(x0), rtol=1e-6)


def test_without_a_gradient_the_answer_is_the_start_projected() -> None:
    result = coco.minimize(lambda x: 0.0 * x, X0, 20, project=lambda x: np.minimum(x, 1.0))
    np.testing.assert_array_equal(result.x, np.ones(3))
    assert not result.success
    assert np.array_equal(coco.minimize(lambda x: 0.0 * x, X0, 20).x, X0)


@pytest.mark.parametrize(
    "gradient", [lambda x: -x, lambda x: 0 * x + [1.0, 2.0, 3.0], lambda x: -(x**3)]
)
def test_an_objective_without_a_minimum_is_said_to_have_none(gradient: Gradient) -> None:
    rng = np.random.default_rng(0)
    result = coco.minimize(lambda x: gradient(x) + 0.1 * rng.normal(size=3), [1.0] * 3, 500)
    assert not result.success
    assert "unbounded below" in result.message
    assert result.nfev < 500


def test_a_fit_that_is_trusted_comes_near_the_limit_which_an_average_does_not() -> None:
    """The limit, tr(H^-1 Sigma) / 2n, holds for many calls: the flattest curvature takes 2000."""
    curvature, fits, averages = np.array([1.0, 0.1, 0.03]), list[float](), list[float]()
    for seed in range(40):
        result = coco.minimize(noisy(seed, 1.0, curvature), np.full(3, 30.0), 2000)
        if np.isfinite(result.std).all():
            fits.append(excess(result.x, curvature))
            average = result._path.unit * result._path.average()[1]
            averages.append(excess(average, curvature))
    assert len(fits) > 30
    limit = float((1.0 / curvature).sum()) / 4000
    assert np.mean(fits) < min(1.5 * limit, 0.8 * float(np.mean(averages)))


def test_gradients_that_are_mostly_zero_are_not_taken_for_precise() -> None:
    """A smooth hinge without noise beyond the margin: a line through zeros would be certain."""

    def single(seed: int) -> Gradient:
        rng = np.random.default_rng(seed)

        def gradient(x: Float64) -> Float64:
            row = rng.normal(size=12) + 2.0 * (1.0 if rng.random() < 0.5 else -1.0)
            margin = np.sign(row.sum()) * (row @ x)
            return np.asarray(-np.sign(row.sum()) * np.clip(1.0 - margin, 0.0, 1.0) * row)

        return gradient

    for seed in range(4):
        result = coco.minimize(single(seed), np.ones(12), 300)
        held_out = [single(100)(result.x) for _ in range(200)]
        assert np.linalg.norm(np.mean(held_out, axis=0)) < 1.0


def test_many_calls_are_joined_and_many_coordinates_are_averaged_only() -> None:
    many = coco.minimize(noisy(), X0, 5000)
    assert len(many._path.points) <= 1024
    assert np.isfinite(many.std).all()
    large = coco.minimize(lambda x: x - 1.0, np.full(2000, 3.0), 40)
    assert len(large._path.points) < 64
    assert np.isnan(large.std).all()
    assert excess(large.x - 1.0, np.ones(2000)) < 0.01 * excess(np.full(2000, 2.0), np.ones(2000))


def test_a_penalty_of_the_fitted_field_needs_no_calls() -> None:
    """In a flat direction the path is far from the end, where the fit is not."""
    curvature, minimum = np.array([1.0, 0.05]), np.array([3.0, 40.0])
    exact = minimum - 0.2 / curvature
    errors = []
    for seed in range(5):
        gradient = noisy(seed, 0.3, curvature, minimum)
        result = coco.minimize(gradient, [1.0, 1.0], 400, prox=lasso(0.2))
        errors.append(excess(result.x - exact, curvature))
        assert result.nfev == 400
    assert np.mean(errors) < 0.05
