"""minimize(): laws of the answer, of what it tells, and of what goes wrong on the way."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser import descent
from coco_denoiser.problems import Quadratic
from coco_denoiser.typing import Float64

CURVATURE = np.array([1.0, 0.7, 0.3])


def noisy(seed: int = 0, noise: float = 1.0) -> Callable[[Float64], Float64]:
    rng = np.random.default_rng(seed)
    return lambda x: CURVATURE * x + noise * rng.normal(size=3)


def excess(x: Float64) -> float:
    return float(0.5 * CURVATURE @ x**2)


@pytest.mark.parametrize("L", [1.0, None])
def test_more_calls_come_nearer_at_the_rate_of_an_average(L: float | None) -> None:
    few, many = (
        np.mean([excess(coco.minimize(noisy(s), [10.0] * 3, n, L=L).x) for s in range(10)])
        for n in (100, 1600)
    )
    assert many < few / 8  # 1 / 16, as noise averages out, and chance


def tail_average(gradient: Callable[[Float64], Float64], x: Float64, calls: int) -> Float64:
    """What SGD at 1/L = 1 answers: the average of the second half of its path."""
    path = []
    for _ in range(calls):
        x = x - gradient(x)
        path.append(x)
    return np.asarray(np.mean(path[calls // 2 :], axis=0))


@pytest.mark.parametrize(("change", "limit"), [(60, 1.0), (140, 0.2)])
def test_noise_that_falls_is_forgotten(change: int, limit: float) -> None:
    def falling(seed: int) -> Callable[[Float64], Float64]:
        calls = iter([noisy(seed, 100.0)] * change + [noisy(seed, 1.0)] * 200)

        def gradient(x: Float64) -> Float64:
            return next(calls)(x)

        return gradient

    x0 = np.full(3, 100.0)
    ours = np.mean([excess(coco.minimize(falling(s), x0, 200, L=1.0).x) for s in range(20)])
    theirs = np.mean([excess(tail_average(falling(s), x0, 200)) for s in range(20)])
    assert ours < limit * theirs


def test_a_path_that_arrives_early_is_averaged_for_longer() -> None:
    x0 = np.full(3, 10.0)
    ours = np.mean([excess(coco.minimize(noisy(s), x0, 300, L=1.0).x) for s in range(40)])
    theirs = np.mean([excess(tail_average(noisy(s), x0, 300)) for s in range(40)])
    assert ours < 0.75 * theirs


def test_points_that_were_still_travelling_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def end() -> float:
        ends, curvature = [], np.array([1.0, 0.02])
        for seed in range(20):
            gradient = Quadratic(curvature, noise_std=1.0).oracle
            rng = np.random.default_rng(seed)
            x = coco.minimize(gradient, [10.0, 10.0], 200, L=1.0, rng=rng).x
            ends.append(curvature @ x**2)
        return float(np.mean(ends))

    chosen = end()
    monkeypatch.setattr(descent, "_TRAVEL", 0.0)
    assert chosen < 0.9 * end()


@pytest.mark.parametrize("L", [1.0, None])
@pytest.mark.parametrize(
    "minimum", [lambda k: 30.0 * (k >= 160), lambda k: 0.15 * k], ids=["jumps", "drifts"]
)
def test_what_was_seen_before_the_minimum_moved_is_left_out(
    minimum: Callable[[int], float], L: float | None
) -> None:
    def moving(seed: int) -> Callable[[Float64], Float64]:
        gradient, calls = noisy(seed, 5.0), itertools.count()
        return lambda x: gradient(x - minimum(next(calls)))

    x0, last = np.full(3, 30.0), minimum(199)
    ours = np.mean([excess(coco.minimize(moving(s), x0, 200, L=L).x - last) for s in range(20)])
    theirs = np.mean([excess(tail_average(moving(s), x0, 200) - last) for s in range(20)])
    assert ours < 1.2 * theirs


def test_momentum_is_for_valleys(monkeypatch: pytest.MonkeyPatch) -> None:
    def end() -> float:
        x = coco.minimize(lambda x: x * [1.0, 0.01], [1.0, 100.0], 200, L=1.0).x
        return float(x @ [0.0, 0.01 * x[1]])

    fast = end()
    monkeypatch.setattr(descent, "_FASTEST", 1.0)
    assert fast < 0.3 * end()


def test_the_path_does_not_depend_on_the_budget() -> None:
    answers: list[Float64] = []
    coco.minimize(noisy(), [10.0] * 3, 700, callback=lambda x, _: answers.append(x.copy()))
    for calls in (2, 9, 100, 300, 700):
        result = coco.minimize(noisy(), [10.0] * 3, calls)
        assert np.array_equal(result.x, answers[calls - 2])  # the last call is not a step


@pytest.mark.parametrize("stretch", [1e-4, 1e4])
def test_without_a_bound_it_is_sane_however_far_the_minimum(stretch: float) -> None:
    # It is 17 * stretch away, and x0 of length 17 says nothing about that.
    ends = []
    for seed in range(8):
        same, x0 = noisy(seed), np.full(3, 10.0)
        result = coco.minimize(lambda x, f=same: f(10.0 + (x - 10.0) / stretch), x0, 1000)
        ends.append(excess(10.0 + (result.x - x0) / stretch))
    assert np.mean(ends) < 0.02 * excess(np.full(3, 10.0))


def test_too_large_a_bound_slows_it_and_too_small_a_one_does_no_harm() -> None:
    ends = [
        np.mean([excess(coco.minimize(noisy(s), [10.0] * 3, 400, L=L).x) for s in range(8)])
        for L in (100.0, 1.0, 0.01)
    ]
    assert ends[2] < 3.0 * ends[1] < ends[0] < excess(np.full(3, 10.0))


def test_the_error_of_the_gradient_is_as_large_as_it_says() -> None:
    errors = []
    for seed in range(40):
        result = coco.minimize(noisy(seed), [10.0] * 3, 100, L=1.0)
        errors.append((result.grad - CURVATURE * result.x) / result.std)
    assert 0.6 < np.sqrt(np.mean(np.square(errors))) < 1.6


@pytest.mark.parametrize("scale", [1e-150, 1e150])
@pytest.mark.parametrize("L", [1.0, None])
def test_units_do_not_matter(scale: float, L: float | None) -> None:
    one = coco.minimize(noisy(), [10.0] * 3, 100, L=L)
    same = noisy()
    other = coco.minimize(lambda x: scale * same(x / scale), [10.0 * scale] * 3, 100, L=L)
    assert np.allclose(other.x, scale * one.x, rtol=1e-6)
    assert np.isclose(other.std, scale * one.std, rtol=1e-6)


def test_the_budget_is_kept_and_the_last_call_is_at_the_answer() -> None:
    asked: list[Float64] = []
    gradient = noisy()

    def watched(x: Float64) -> Float64:
        asked.append(x)
        return gradient(x)

    for L in (1.0, None):
        asked.clear()
        result = coco.minimize(watched, [10.0] * 3, 57, L=L)
        assert len(asked) == result.nfev == 57
        assert np.array_equal(asked[-1], result.x)


def test_any_shape_and_a_generator() -> None:
    problem = Quadratic(np.ones(4), noise_std=1.0)

    def gradient(x: Float64, rng: np.random.Generator) -> Any:
        return problem.oracle(x.reshape(-1), rng).reshape(2, 2)

    first, second = (
        coco.minimize(gradient, np.ones((2, 2)), 50, rng=np.random.default_rng(3)) for _ in "12"
    )
    assert first.x.shape == first.grad.shape == (2, 2)
    assert np.array_equal(first.x, second.x)
    with pytest.raises(TypeError, match="rng must be"):
        coco.minimize(gradient, np.ones((2, 2)), 50)


def test_an_interrupted_run_goes_on_as_if_nothing_had_happened() -> None:
    whole = coco.minimize(noisy(), [10.0] * 3, 200, L=1.0)
    gradient, left = noisy(), 80

    def failing(x: Float64) -> Float64:
        nonlocal left
        left -= 1
        if left < 0:
            raise ConnectionError("no answer")
        return gradient(x)

    words = r"call 81 failed: ConnectionError: no answer\. The error"
    with pytest.raises(coco.MinimizeError, match=words) as caught:
        coco.minimize(failing, [10.0] * 3, 200, L=1.0)
    assert isinstance(caught.value.__cause__, ConnectionError)
    for _ in "12":  # a result can be gone on from more than once
        later = noisy()
        for _ in range(80):
            later(np.zeros(3))
        again = coco.minimize(later, [10.0] * 3, 120, resume=caught.value.result)
        assert again.nfev == 201  # one failed
        assert np.array_equal(again.x, whole.x)
        assert np.array_equal(again.grad, whole.grad)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([np.nan, 0.0, 0.0], "must be finite"),
        ([0.0, np.inf, 0.0], "must be finite"),
        ([0.0, 0.0], "shape of x"),
        (None, "real numbers"),
        ((1.0, [0.0, 0.0, 0.0]), "gradient alone"),
    ],
)
def test_a_bad_oracle_ends_with_the_best_point_so_far(answer: Any, words: str) -> None:
    gradient, calls = noisy(), 0

    def breaks(x: Float64) -> Any:
        nonlocal calls
        calls += 1
        return answer if calls == 60 else gradient(x)

    with pytest.raises(coco.MinimizeError, match=words) as caught:
        coco.minimize(breaks, [10.0] * 3, 100, L=1.0)
    result = caught.value.result
    assert "call 60" in result.message
    assert excess(result.x) < 0.1 * excess(np.full(3, 10.0))


def test_the_callback_sees_every_call_and_can_end_the_run() -> None:
    seen: list[int] = []

    def stop(x: Float64, calls: int) -> bool:
        assert x.shape == (3,)
        seen.append(calls)
        return calls == 30

    result = coco.minimize(noisy(), [10.0] * 3, 100, L=1.0, callback=stop)
    assert seen == list(range(1, 31))
    assert result.nfev == 30
    assert "callback" in result.message


def test_progress_is_shown_a_few_times_a_second_where_it_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    coco.minimize(noisy(), [10.0] * 3, 20, L=1.0)
    assert capsys.readouterr().err == ""
    begun = time.monotonic()
    result = coco.minimize(noisy(), [10.0] * 3, 200, L=1.0, progress=True)
    printed = capsys.readouterr().err.split("\r")[1:]
    assert len(printed) <= 2 + (time.monotonic() - begun) / 0.2
    length, error = np.linalg.norm(result.grad), np.sqrt(3) * result.std
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

    result = coco.minimize(watched, [10.0] * 3, 300, L=1.0)
    assert result.success
    assert result.message == "used all 300 calls; the gradient is within its standard error."
    np.testing.assert_allclose(result.history, asked)
    lines = repr(result).splitlines()
    assert [line.split(":")[0].strip() for line in lines] == [
        "message", "success", "nfev", "x", "grad", "std",
    ]  # fmt: skip
    early = coco.minimize(noisy(noise=0.01), [10.0] * 3, 12, L=1.0)
    assert "more calls would help" in early.message
    assert not early.success


@pytest.mark.parametrize("L", [1.0, None])
@pytest.mark.parametrize(
    "gradient", [lambda x: -x, lambda x: 0 * x + [1.0, 2.0, 3.0], lambda x: -(x**3)]
)
def test_an_objective_without_a_minimum_is_said_to_have_none(
    gradient: Callable[[Float64], Float64], L: float | None
) -> None:
    rng = np.random.default_rng(0)
    result = coco.minimize(lambda x: gradient(x) + 0.1 * rng.normal(size=3), [1.0] * 3, 500, L=L)
    assert not result.success
    # With L given, a constant gradient leads away at a constant pace, and not far.
    far = np.linalg.norm(result.x) > 1e5
    assert ("unbounded below" in result.message) == far
    assert far == (result.nfev < 500)
    assert far or L is not None


@pytest.mark.parametrize(
    ("arguments", "options", "named"),
    [
        ((noisy(), [1.0]), {"jac": noisy()}, "'jac'"),
        ((noisy(), noisy(), [1.0]), {}, "as x0"),
        (((noisy(), noisy()), [1.0]), {}, "as gradient"),
    ],
)
def test_a_call_as_of_scipys_minimize_is_told_what_to_pass(
    arguments: tuple[Any, ...], options: dict[str, Any], named: str
) -> None:
    with pytest.raises(TypeError, match=r"minimize\(gradient, x0, calls=500\).*" + named):
        coco.minimize(*arguments, **options)


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        ({"calls": 0}, ValueError, "calls"),
        ({"calls": 2.5}, TypeError, "calls"),
        ({"x0": [np.nan]}, ValueError, "x0"),
        ({"L": -1.0}, ValueError, "L must be positive"),
        ({"noise_std": 0.0}, ValueError, "noise_std"),
        ({"gradient": 3}, TypeError, "gradient"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, Any], error: type[Exception], word: str) -> None:
    arguments: dict[str, Any] = {"gradient": noisy(), "x0": [1.0] * 3, "calls": 10} | change
    with pytest.raises(error, match=word):
        coco.minimize(**arguments)
