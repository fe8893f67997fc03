"""Bad input gets one clear error; legal but extreme input gets the right answer."""

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser import curvature
from coco_denoiser._validation import LIMITS
from coco_denoiser.paper.optimizers import (
    IGT,
    SGD,
    Adam,
    HeavyBall,
    ScheduleFree,
    decreasing,
    run,
    soft_threshold,
    tail_average,
)
from coco_denoiser.paper.problems import LogisticRegression, Quadratic, signed_labels
from tests.families import Case, modelled
from tests.fuzz import judge

X = np.random.default_rng(0).normal(size=(4, 3))
G = 10.0 * np.random.default_rng(1).normal(size=(4, 3))
RNG, LINE = np.random.default_rng(0), Quadratic([1.0])
NAN = X.copy()
NAN[2, 1] = np.nan

Bad = list[tuple[dict[str, Any], type[Exception], str]]  # changes, and what is said of them
WINDOW = "window must be a positive integer or None"
SOLVE: Bad = [
    ({"points": X[:3]}, ValueError, r"same shape, got \(3, 3\) and \(4, 3\)"),
    ({"points": X[0], "gradients": G[0]}, ValueError, r"points must have shape \(K, d\).*\(3,\)"),
    ({"points": X[None]}, ValueError, r"points must have shape \(K, d\)"),
    ({"points": X[:0], "gradients": G[:0]}, ValueError, r"points.*got shape \(0, 3\)"),
    ({"points": X[:, :0], "gradients": G[:, :0]}, ValueError, r"points.*got shape \(4, 0\)"),
    ({"points": NAN}, ValueError, r"points must be finite, got nan at index \(2, 1\)"),
    ({"gradients": -np.inf * X}, ValueError, "gradients must be finite, got -?inf"),
    *(
        ({name: bad}, TypeError, f"{name} must hold real numbers, got dtype {bad.dtype}")
        for name in ("points", "gradients")
        for bad in (X.astype(object), X.astype(str), X + 0j, X > 0)
    ),
    ({"points": [[1.0, 2.0], [3.0]]}, ValueError, "points must be a rectangular array"),
    ({"gradients": np.ma.masked_less(G, 0.0)}, ValueError, "gradients must not be masked"),
    ({"points": list(np.ma.masked_less(X, 0.0))}, ValueError, "points must not be masked"),
    *(({"L": bad}, ValueError, f"L must be positive and finite, got {bad}") for bad in (0.0, -1.0)),
    *(({"L": bad}, ValueError, f"L must be finite, got {bad}") for bad in (np.nan, np.inf)),
    *(
        ({"L": bad}, TypeError, f"L must be a real number, got {re.escape(repr(bad))}")
        for bad in ("1", True, 1j, np.ones(2), np.ma.masked)
    ),
    *(({"mu": mu}, ValueError, f"less than L, got mu={mu} and L=1.0") for mu in (1.0, 2.0)),
    ({"mu": -np.inf}, ValueError, "mu must be finite"),
    ({"noise_variance": np.ones(3)}, ValueError, r"noise_variance.*shape \(4,\), got shape \(3,\)"),
    ({"noise_variance": [1, 1, 0, 1]}, ValueError, "noise_variance must be positive, got 0.0 at"),
    ({"noise_variance": [1, 1, np.nan, 1]}, ValueError, "noise_variance must be finite"),
    ({"noise_variance": 2.0}, ValueError, "noise_variance"),
    ({"covariance": np.ones(2)}, ValueError, r"covariance must have shape \(3,\).*\(2,\)"),
    ({"covariance": [1.0, 2.0, 0.0]}, ValueError, "covariance must be positive definite, got 0.0"),
    (
        {"covariance": np.ones((3, 3)) - np.eye(3)},
        ValueError,
        "covariance must be positive definite",
    ),
    ({"covariance": np.triu(np.ones((3, 3)))}, ValueError, "covariance must be symmetric"),
    (
        {"method": "closed-form"},
        ValueError,
        r"'closed-form' is for two distinct points, got \d.*or one of 'newton', 'barrier', 'fdpg'",
    ),
    ({"method": "line"}, ValueError, "'line' is for one dimension.*Use method='auto'"),
    ({"method": "simplex"}, ValueError, "method must be one of 'auto'.*got 'simplex'"),
    ({"tol": 0.0}, ValueError, "tol must be positive and finite, got 0.0"),
    ({"max_iter": 0}, ValueError, "max_iter must be a positive integer or None, got 0"),
    ({"max_iter": 2.5}, TypeError, "max_iter must be a positive integer or None, got 2.5"),
    ({"L": 1e300}, ValueError, r"points, gradients and gradients - c \* points \(c = .* 5e\+299\)"),
    ({"L": "auto"}, TypeError, r"L must be a real number.*model=Gaussian\(\).*\.curvature"),
    ({"model": "gaussian", "covariance": np.ones(3)}, ValueError, "only supported by Cocoercive"),
    *(({"model": "gaussian", "L": bad}, ValueError, "L must be") for bad in (0.0, -1.0, np.nan)),
    *(({"model": "gaussian", name: 0.1}, TypeError, name) for name in ("mu", "method", "max_iter")),
]
INTERFACE: Bad = [
    ({"L": None}, ValueError, r"Pass L for the paper's method, or model=Gaussian\(\)"),
    ({"L": None, "model": "gaussian"}, TypeError, r"such as Gaussian\(\).*got 'gaussian'"),
    ({"model": coco.Gaussian()}, ValueError, "L is an option of the model: pass Gaussian"),
]
DENOISER: Bad = [
    *(({"window": window}, ValueError, WINDOW) for window in (0, -1)),
    *(({"window": window}, TypeError, WINDOW) for window in (2.0, "8", True)),
    ({"method": "newton"}, ValueError, "method must be one of 'auto', 'fdpg', got 'newton'"),
    ({"forget": "keep"}, ValueError, "forget must be one of 'drop', 'fold', got 'keep'"),
    ({"forget": "fold", "window": 1}, ValueError, "at least 2, got window=1.*Use window=2"),
    ({"model": "gaussian", "forget": "fold"}, ValueError, "fold' is only supported by Cocoercive"),
]
MINIMIZE: Bad = [
    ({"x0": abs}, TypeError, r"minimize\(gradient, x0, calls=500\).*as x0"),
    ({"gradient": (abs, abs)}, TypeError, "as gradient"),
    ({"calls": 0}, ValueError, "calls"),
    ({"calls": 2.5}, TypeError, "calls"),
    ({"x0": [np.nan]}, ValueError, "x0"),
    ({"project": abs, "prox": soft_threshold}, ValueError, "project or prox, not both"),
]
LINEAR_MODEL: Bad = [
    ({"loss": "poisson"}, ValueError, "must have bounded curvature, got 'poisson'"),
    ({"loss": "hinge"}, ValueError, "loss must be one of 'squared'"),
    ({"weights": [1.0, -1.0]}, ValueError, "weights must be at least 0, got -1.0 at index 1"),
    ({"weights": [1.0]}, ValueError, r"shape \(2,\), got shape \(1,\)"),
    ({"regularization": -1.0}, ValueError, "regularization must be at least 0, got -1.0"),
    ({"features": [1.0, 2.0]}, ValueError, "features must be a table"),
]
QUADRATIC: Bad = [
    ({"hessian": np.ones((2, 3))}, ValueError, "hessian"),
    ({"hessian": []}, ValueError, "hessian"),
    ({"hessian": [1, np.nan]}, ValueError, "finite"),
    ({"hessian": [[1, 2], [0, 1]]}, ValueError, "symmetric"),
    ({"hessian": [1, -1]}, ValueError, "semidefinite"),
    ({"hessian": [0, 0]}, ValueError, "not zero"),
    *(({"minimizer": bad}, ValueError, "minimizer") for bad in ([0], [0, np.inf])),
    *(({"noise_std": bad}, ValueError, "noise_std") for bad in (-1, np.nan)),
]
LOGISTIC: Bad = [
    ({"features": np.ones(3)}, ValueError, "features"),
    ({"features": np.ones((0, 2)), "labels": []}, ValueError, "features"),
    ({"features": [[1, np.nan], [1, 1]]}, ValueError, "finite"),
    ({"features": np.zeros((2, 2))}, ValueError, "features"),
    ({"labels": [1]}, ValueError, "labels"),
    ({"labels": [1, 2]}, ValueError, "signed_labels"),
    *(({"regularization": bad}, ValueError, "regularization") for bad in (-1, np.inf)),
]
RUN: Bad = [
    *(({"x0": bad}, ValueError, "x0") for bad in ([1.0, 2.0], [np.nan])),
    *(({"steps": bad}, ValueError, "steps") for bad in (-1, 2.5)),
    ({"rng": 7}, TypeError, "default_rng"),
    ({"rng": np.random}, TypeError, "rng"),
    ({"problem": lambda _: [1.0, 2.0]}, ValueError, r"shape of x, \(1,\), got shape \(2,\)"),
    ({"problem": lambda _: None}, ValueError, "real numbers"),
    ({"problem": lambda x, _: x, "rng": None}, TypeError, "rng must be"),
    ({"problem": 3}, TypeError, "problem must have an oracle"),
    ({"project": abs, "prox": soft_threshold}, ValueError, "project"),
    ({"optimizer": ScheduleFree(1.0), "project": abs}, TypeError, "project"),
]


def _given(function: Any, **options: Any) -> Any:
    """Call an interface with options of a model among its own."""
    return function(**modelled(**options))


TABLE: list[tuple[Any, dict[str, Any], Bad]] = [
    (coco.solve, {"points": X, "gradients": G, "L": 1.0}, INTERFACE),
    (coco.Denoiser, {"L": 1.0}, INTERFACE),
    (partial(_given, coco.solve), {"points": X, "gradients": G, "L": 1.0}, SOLVE),
    (partial(_given, coco.Denoiser), {"L": 1.0}, DENOISER),
    (coco.minimize, {"gradient": np.array, "x0": [1.0] * 3, "calls": 10}, MINIMIZE),
    (curvature.linear_model, {"loss": "squared", "features": [[1.0], [2.0]]}, LINEAR_MODEL),
    (Quadratic, {"hessian": [1, 1]}, QUADRATIC),
    (LogisticRegression, {"features": np.ones((2, 2)), "labels": [1, -1]}, LOGISTIC),
    (run, {"optimizer": SGD(0.1), "problem": LINE, "x0": [1.0], "steps": 1, "rng": RNG}, RUN),
]
# Functions with one bad option each.
OPTIONS: list[tuple[Any, str, Any, str]] = [
    *((signed_labels, "labels", bad, "two classes") for bad in ([1, 1], [1, 2, 3], [])),
    (partial(Adam, 0.1), "beta1", 1.0, "beta1"),
    (partial(Adam, 0.1), "beta2", -0.1, "beta2"),
    (partial(Adam, 0.1), "eps", 0.0, "eps"),
    (partial(IGT, 0.1), "tail", 0.0, "tail"),
    (partial(HeavyBall, 0.1), "beta", 2, "beta"),
    (partial(tail_average, X), "start", -1, "start"),
    (decreasing, "C", 0.0, "C must be positive"),
    (decreasing, "C", np.nan, "C must be finite"),
]


@pytest.mark.parametrize(
    ("function", "arguments", "error", "message"),
    [
        *((f, good | change, *said) for f, good, rows in TABLE for change, *said in rows),
        *((f, {option: bad}, ValueError, words) for f, option, bad, words in OPTIONS),
    ],
)
def test_bad_input_is_named(
    function: Any, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        function(**arguments)


def test_lists_and_integers_are_converted() -> None:
    points, gradients = [[0, 0], [1, 0], [0, 1]], [[3, 1], [0, 2], [1, 1]]
    expected = coco.denoise(np.array(points, float), np.array(gradients, float), L=1.0)
    np.testing.assert_array_equal(coco.denoise(points, gradients, L=1), expected)
    narrow = coco.denoise(np.array(points, np.int8), np.array(gradients, np.float32), L=1.0)
    np.testing.assert_array_equal(narrow, expected)


def test_input_is_not_changed_and_not_shared() -> None:
    x, g = X.copy(), G.copy()
    solution = coco.solve(x, g, L=1.0)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(g, G)
    unchanged = coco.solve(x, 0.5 * x, L=1.0)
    np.testing.assert_array_equal(unchanged.gradients, 0.5 * x)
    assert unchanged.status is coco.Status.UNCHANGED
    assert solution.status is coco.Status.SOLVED
    assert not np.shares_memory(unchanged.gradients, x)
    assert not np.shares_memory(solution.gradients, g)


def test_one_point_is_returned() -> None:
    np.testing.assert_array_equal(coco.denoise(X[:1], G[:1], L=1.0), G[:1])
    assert coco.solve(X[:1], G[:1], L=1.0).weights == 1.0


@pytest.mark.parametrize("L", [1e-300, 1e-150, 1e-12])
def test_a_tiny_bound_leaves_only_the_mean(L: float) -> None:
    theta = coco.denoise(X, G, L=L)
    np.testing.assert_allclose(theta, np.tile(G.mean(axis=0), (4, 1)), atol=1e-10)


@pytest.mark.parametrize("L", [1e12, 1e100, 1e149])
def test_a_huge_bound_binds_only_what_is_not_monotone(L: float) -> None:
    """As L grows, co-coercivity becomes monotonicity: <theta_m - theta_l, x_m - x_l> >= 0."""
    ordered = np.arange(4.0)[:, None]
    np.testing.assert_array_equal(coco.denoise(ordered, 2.0 * ordered, L=L), 2.0 * ordered)


@pytest.mark.parametrize("options", [{"L": 1e-3}, {"model": coco.Gaussian()}], ids=str)
def test_a_batch_has_a_largest_magnitude_and_says_it(options: Any) -> None:
    small, largest = np.ones((2, 2)), LIMITS[np.dtype(np.float64)]
    other = np.array([[1.0, 1.0], [0.9 * largest, 1.0]])
    for pair in ((small, other), (other, small), (-other, other)):
        coco.denoise(*pair, **options)
        with pytest.raises(ValueError, match=re.escape(f"must not exceed {largest:.0e}")):
            coco.denoise(*(np.where(abs(v) > 1.0, 1.2 * v, v) for v in pair), **options)


@pytest.mark.parametrize("a", [1e-300, 1e-150, 1e140])
@pytest.mark.parametrize("b", [1e-300, 1e-150, 1e140])
def test_small_and_large_numbers_get_the_same_answer(a: float, b: float) -> None:
    if 0.0 < b / a < np.inf:
        found = coco.solve(a * X, b * G, L=b / a)
        np.testing.assert_allclose(found.gradients / b, coco.denoise(X, G, L=1.0), rtol=1e-13)
        assert found.status is coco.Status.SOLVED
    found = coco.solve(a * X, b * G, model=coco.Gaussian())
    expected = coco.denoise(X, G, model=coco.Gaussian())
    np.testing.assert_allclose(found.gradients / b, expected, rtol=1e-6)


@pytest.mark.parametrize("seed", [*range(150), 623, 2405, 4264])  # on lines, the last three
def test_windows_of_mixed_scales_get_an_answer_without_a_warning(seed: int) -> None:
    """From 1e-20 to 1e20 in one window, zeros included; warnings are errors here."""
    rng = np.random.default_rng(seed)
    K, d = int(rng.integers(2, 9)), int(rng.choice([1, 2, 3, 10]))

    def mixed() -> Any:
        return rng.normal(size=(K, d)) * 10.0 ** rng.uniform(-20, 20, (K, 1)) * (rng.random() < 0.9)

    L = 10.0 ** rng.uniform(-20, 20)
    case = Case(mixed(), mixed(), L, float(rng.choice([-L, 0.0, L / 3])))
    found = case.solve(throw=False)
    assert not (found.status.success and judge(case, found).wrong)


def test_denormals() -> None:
    tiny = 5e-324
    points, gradients = np.array([[0.0], [4 * tiny]]), np.array([[8 * tiny], [0.0]])
    # Residuals 8 and -2 (in units of the least number), 2 apart at most: 4 and 2, so that the
    # gradients are 4 and 4.
    np.testing.assert_array_equal(coco.denoise(points, gradients, L=1.0), [[4 * tiny]] * 2)
