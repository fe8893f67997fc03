"""Bad input gets one clear error; legal but extreme input gets the right answer."""

from typing import Any

import numpy as np
import pytest

import coco_denoiser as coco

X = np.random.default_rng(0).normal(size=(4, 3))
G = 10.0 * np.random.default_rng(1).normal(size=(4, 3))
NAN = X.copy()
NAN[2, 1] = np.nan

BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"points": X[:3]}, ValueError, r"same shape, got \(3, 3\) and \(4, 3\)"),
    ({"points": X[0], "gradients": G[0]}, ValueError, r"points must have shape \(K, d\).*\(3,\)"),
    ({"points": X[None]}, ValueError, r"points must have shape \(K, d\)"),
    ({"points": X[:0], "gradients": G[:0]}, ValueError, r"points.*got shape \(0, 3\)"),
    ({"points": X[:, :0], "gradients": G[:, :0]}, ValueError, r"points.*got shape \(4, 0\)"),
    ({"points": NAN}, ValueError, r"points must be finite, got nan at index \(2, 1\)"),
    ({"gradients": -np.inf * X}, ValueError, "gradients must be finite, got -?inf"),
    ({"points": X.astype(object)}, TypeError, "points must hold real numbers, got dtype object"),
    ({"gradients": X.astype(str)}, TypeError, "gradients must hold real numbers, got dtype <U"),
    ({"gradients": X + 0j}, TypeError, "gradients must hold real numbers, got dtype complex128"),
    ({"gradients": X > 0}, TypeError, "gradients must hold real numbers, got dtype bool"),
    ({"points": [[1.0, 2.0], [3.0]]}, ValueError, "points must be a rectangular array"),
    ({"gradients": np.ma.masked_less(G, 0.0)}, ValueError, "gradients must not be masked"),
    ({"points": list(np.ma.masked_less(X, 0.0))}, ValueError, "points must not be masked"),
    ({"L": np.ma.masked}, TypeError, "L must be a real number, got masked"),
    ({"L": 0.0}, ValueError, "L must be positive and finite, got 0.0"),
    ({"L": -1.0}, ValueError, "L must be positive and finite, got -1.0"),
    ({"L": np.nan}, ValueError, "L must be finite, got nan"),
    ({"L": np.inf}, ValueError, "L must be finite, got inf"),
    ({"L": "1"}, TypeError, "L must be a real number, got '1'"),
    ({"L": True}, TypeError, "L must be a real number, got True"),
    ({"L": 1j}, TypeError, "L must be a real number"),
    ({"L": np.ones(2)}, TypeError, r"L must be a real number, got array"),
    ({"mu": 1.0}, ValueError, "mu must be less than L, got mu=1.0 and L=1.0"),
    ({"mu": 2.0}, ValueError, "mu must be less than L"),
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
        {"covariance": [1.0, 2.0, 3.0], "method": "interior-point"},
        ValueError,
        "'interior-point' does not support a covariance.*or one of 'barrier', 'large'",
    ),
    ({"method": "simplex"}, ValueError, "method must be one of 'auto'.*got 'simplex'"),
    ({"method": None}, ValueError, "method must be one of"),
    ({"method": "closed-form"}, ValueError, "two distinct points, got 4. Use method='auto'"),
    ({"method": "line"}, ValueError, "'line' is for one dimension and all pairs. Use method="),
    ({"neighbors": 0}, ValueError, "neighbors must be a positive integer or None, got 0"),
    ({"neighbors": 1.5}, TypeError, "neighbors must be a positive integer"),
    ({"neighbors": True}, TypeError, "neighbors must be a positive integer"),
    ({"tol": 0.0}, ValueError, "tol must be positive and finite, got 0.0"),
    ({"tol": np.nan}, ValueError, "tol must be finite"),
    ({"max_iter": 0}, ValueError, "max_iter must be a positive integer or None, got 0"),
    ({"max_iter": 2.5}, TypeError, "max_iter must be a positive integer or None, got 2.5"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_input_is_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    good: dict[str, Any] = {"points": X, "gradients": G, "L": 1.0}
    with pytest.raises(error, match=message):
        coco.solve(**(good | change))


@pytest.mark.parametrize("window", [0, -1, 2.0, "8", True])
def test_bad_windows_are_named(window: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="window must be a positive integer or None"):
        coco.Denoiser(L=1.0, window=window)


def test_bad_curvature_is_named_in_a_stream() -> None:
    with pytest.raises(ValueError, match="L must be positive"):
        coco.Denoiser(L=0.0)
    with pytest.raises(ValueError, match="mu must be less than L"):
        coco.Denoiser(L=1.0, mu=3.0)


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
    unchanged = coco.solve(x, 0.5 * x, L=1.0).gradients
    assert not np.shares_memory(unchanged, x)
    assert not np.shares_memory(solution.gradients, g)


def test_one_point_is_returned() -> None:
    np.testing.assert_array_equal(coco.denoise(X[:1], G[:1], L=1.0), G[:1])
    assert coco.solve(X[:1], G[:1], L=1.0).weights == 1.0


@pytest.mark.parametrize("L", [1e-300, 1e-150, 1e-12])
def test_a_tiny_bound_leaves_only_the_mean(L: float) -> None:
    theta = coco.denoise(X, G, L=L)
    np.testing.assert_allclose(theta, np.tile(G.mean(axis=0), (4, 1)), atol=1e-10)


@pytest.mark.parametrize("L", [1e12, 1e150, 1e300])
def test_a_huge_bound_binds_only_what_is_not_monotone(L: float) -> None:
    """As L grows, co-coercivity becomes monotonicity: <theta_m - theta_l, x_m - x_l> >= 0."""
    ordered = np.arange(4.0)[:, None]
    np.testing.assert_array_equal(coco.denoise(ordered, 2.0 * ordered, L=L), 2.0 * ordered)


@pytest.mark.parametrize("ex", [-150, -100, 0, 100, 150])
@pytest.mark.parametrize("eg", [-150, -100, 0, 100, 150])
def test_any_scales_of_points_and_gradients(ex: int, eg: int) -> None:
    expected = coco.denoise(X, G, L=1.0)
    scaled = coco.denoise(X * 10.0**ex, G * 10.0**eg, L=10.0 ** (eg - ex))
    np.testing.assert_allclose(scaled / 10.0**eg, expected, atol=1e-9)


def test_denormals() -> None:
    tiny = 5e-324
    points, gradients = np.array([[0.0], [4 * tiny]]), np.array([[8 * tiny], [0.0]])
    # Residuals 8 and -2 (in units of the least number), 2 apart at most: 4 and 2, so that the
    # gradients are 4 and 4.
    np.testing.assert_array_equal(coco.denoise(points, gradients, L=1.0), [[4 * tiny]] * 2)


@pytest.mark.parametrize("value", [0.0, 1.0, -1e150])
def test_constant_input_is_unchanged(value: float) -> None:
    constant = np.full((3, 2), value)
    np.testing.assert_array_equal(coco.denoise(constant, constant, L=1.0), constant)
    np.testing.assert_array_equal(coco.denoise(0.0 * constant, constant, L=1.0), constant)


def test_who_does_not_know_the_curvature_is_told_where_to_look() -> None:
    anything: Any = "auto"
    with pytest.raises(TypeError, match=r"L must be a real number.*model='gaussian'.*\.curvature"):
        coco.denoise([[1.0]], [[1.0]], L=anything)
