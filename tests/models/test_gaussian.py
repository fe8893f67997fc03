"""The Gaussian model: its theory, as laws of its kernel."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

import coco_denoiser as coco
from coco_denoiser.models.slope import GUARD, Fit, _residuals, fit
from tests.windows import distances

Array = NDArray[np.float64]


def fitted(x: Array, g: Array, v: Array | None = None, **known: float) -> Fit:
    """Fit all points of a window given as vectors."""
    K, d = x.shape
    variances = np.ones(K) if v is None else v
    return fit(distances(x), distances(g), 1.0 / variances, np.arange(K), d, **known)


def drawn(
    rng: np.random.Generator, K: int, d: int, *, s: float = 0.3, sigma: float = 1.0
) -> tuple[Array, Array, Array, Array]:
    """Draw a walk and gradients from the model: points, gradients, their true means, variances."""
    x = np.cumsum(rng.standard_normal((K, d)), axis=0) / math.sqrt(d)
    truth = rng.standard_normal(d) + x @ (s * rng.standard_normal((d, d)))
    g = truth + sigma * rng.standard_normal((K, d))
    return x, g, truth, rng.uniform(0.5, 2.0, K)


def contrasts(x: Array, g: Array, v: Array, t: float) -> tuple[Array, Array, float]:
    """Return differences from the first, their covariance, and squares of g over it."""
    B = np.hstack([-np.ones((len(x) - 1, 1)), np.eye(len(x) - 1)])
    S, y = B @ (np.diag(v) + t * x @ x.T) @ B.T, B @ g
    return B, S, float(np.trace(y.T @ np.linalg.solve(S, y)))


def likelihood(x: Array, g: Array, v: Array, t: float) -> float:
    """Return the log of restricted likelihood times prior, from dense matrices."""
    (K, d), (B, S, fit_) = x.shape, contrasts(x, g, v, t)
    slope = np.linalg.solve(S, B @ (t * x @ x.T) @ B.T)
    information = np.trace(slope @ slope) - np.trace(slope) ** 2 / (K - 1)
    value = math.log(information) - d * np.linalg.slogdet(S)[1] - d * (K - 1) * math.log(fit_)
    return 0.5 * float(value)


@pytest.mark.parametrize(("K", "d"), [(3, 1), (3, 4), (8, 1), (8, 5), (16, 40)])
def test_weights_are_generalised_least_squares_in_all_coordinates(K: int, d: int) -> None:
    rng = np.random.default_rng(K + d)
    x, g, _, v = drawn(rng, K, d)
    found = fitted(x, g, v)
    assert found.gap.max() < 1e-12
    # What is used is the most likely slope, guarded, with the noise that then is most likely.
    best = (found.scale / found.noise_std) ** 2
    for j in (0, K // 2, K - 1):
        z = x - x[j]
        S = np.diag(v) + GUARD * best * z @ z.T
        dense = np.kron(S, np.eye(d))
        design = np.kron(np.ones((K, 1)), np.eye(d))
        inverse = np.linalg.inv(dense)
        theta = np.linalg.solve(design.T @ inverse @ design, design.T @ inverse @ g.ravel())
        np.testing.assert_allclose(found.weights[j] @ g, theta, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize(("K", "d"), [(4, 1), (8, 2), (8, 20)])
def test_no_ratio_is_more_likely_nor_another_noise(K: int, d: int) -> None:
    rng = np.random.default_rng(7 * K + d)
    x, g, _, v = drawn(rng, K, d)
    found = fitted(x, g, v)
    best = (found.scale / found.noise_std) ** 2
    top = likelihood(x, g, v, best)
    for factor in (1e-3, 0.1, 0.9, 0.99, 1.01, 1.1, 10.0, 1e3):
        assert likelihood(x, g, v, factor * best) < top


def test_without_noise_gradients_of_a_linear_field_are_returned() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 3))
    g = x @ rng.standard_normal((3, 3))
    found = fitted(x, g)
    np.testing.assert_allclose(found.weights @ g, g, atol=1e-5)
    assert found.noise_std < 1e-5
    assert found.std.max() < 1e-4


@pytest.mark.parametrize(("K", "d"), [(3, 3), (8, 1), (16, 40)])
def test_what_a_change_of_units_or_axes_does(K: int, d: int) -> None:
    rng = np.random.default_rng(K + d)
    x, g, _, v = drawn(rng, K, d)
    found = fitted(x, g, v)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    order = rng.permutation(K)
    same = {  # what it was fitted to, and how many times as large std, noise_std and scale are
        "shift": ((x + 5.0, g - 3.0, v), 1.0, 1.0, 1.0),
        "rotation": ((x @ turn, g @ turn, v), 1.0, 1.0, 1.0),
        "order": ((x[order], g[order], v[order]), 1.0, 1.0, 1.0),
        "variances": ((x, g, 16.0 * v), 1.0, 0.25, 1.0),
        "large": ((x * 1e150, g * 1e-150, v), 1e-150, 1e-150, 1e-300),
        "small": ((x * 1e-150, g * 1e150, v), 1e150, 1e150, 1e300),
    }
    for name, (window, unit, noise, scale) in same.items():
        other = fitted(*window)
        back = np.argsort(order) if name == "order" else np.arange(K)
        W, std = other.weights[np.ix_(back, back)], other.std[back]
        np.testing.assert_allclose(W, found.weights, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(std, unit * found.std, rtol=1e-4, err_msg=name)
        assert other.noise_std == pytest.approx(noise * found.noise_std, rel=1e-6), name
        assert other.scale == pytest.approx(scale * found.scale, rel=1e-6), name


@pytest.mark.parametrize(("K", "d"), [(8, 6), (16, 1), (32, 50)])
def test_standard_errors_cover(K: int, d: int) -> None:
    rng = np.random.default_rng(100 * K + d)
    once = twice = total = 0
    newest = np.array([K - 1])
    for _ in range({1: 2000, 6: 600, 50: 100}[d]):
        x, g, truth, _ = drawn(rng, K, d, s=0.3)
        found = fit(distances(x), distances(g), np.ones(K), newest, d)
        error = np.abs(found.weights[0] @ g - truth[-1])
        once += int((error <= found.std[0]).sum())
        twice += int((error <= 1.96 * found.std[0]).sum())
        total += d
    assert once / total == pytest.approx(0.68, abs=0.04)
    assert twice / total == pytest.approx(0.95, abs=0.03)


def test_points_that_coincide_are_averaged() -> None:
    rng = np.random.default_rng(0)
    g = rng.standard_normal((6, 4))
    v = rng.uniform(0.5, 2.0, 6)
    found = fitted(np.zeros((6, 4)), g, v)
    np.testing.assert_allclose(found.weights[2], (1 / v) / (1 / v).sum(), atol=1e-12)
    contrasts = (g - found.weights[0] @ g) / np.sqrt(v)[:, None]
    assert found.noise_std == pytest.approx(math.sqrt((contrasts**2).sum() / 20), rel=1e-9)
    # Two of eight: they have the same gradient.
    x, g, *_ = drawn(rng, 8, 4)
    x[3] = x[6]
    theta = fitted(x, g).weights @ g
    np.testing.assert_allclose(theta[3], theta[6], atol=1e-9)


def test_one_or_two_observations_tell_nothing_unless_the_curvature_is_known() -> None:
    x, g = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 2.0]])
    one, found = fitted(x[:1], g[:1]), fitted(x, g)
    assert one.weights.tolist() == [[1.0]]
    assert math.isnan(one.std[0])
    np.testing.assert_array_equal(found.weights, np.eye(2))
    # At most all of the difference is noise.
    assert found.noise_std == pytest.approx(math.sqrt(5.0 / 2 / 2))
    assert (found.std > found.noise_std).all()
    assert (np.diag(fitted(x, g, L=0.1).weights) < 0.9).all()
    # A cap that is not reached tells nothing.
    np.testing.assert_array_equal(fitted(x, g, L=100.0).weights, np.eye(2))


def test_identical_gradients_stay() -> None:
    x = np.random.default_rng(0).standard_normal((5, 3))
    found = fitted(x, np.ones((5, 3)))
    np.testing.assert_allclose(found.weights @ np.ones((5, 3)), 1.0)
    assert found.noise_std == 0.0
    assert (found.std == 0.0).all()
    assert found.gap.max() < 1e-12


def test_the_cap_is_kept_and_does_not_matter_when_loose() -> None:
    rng = np.random.default_rng(0)
    x, g, _, v = drawn(rng, 16, 6, s=1.0)
    free = fitted(x, g, v)
    L = 0.5 * free.scale * math.sqrt(6)
    capped = fitted(x, g, v, L=L)
    assert capped.scale <= L / math.sqrt(6) * (1 + 1e-9)
    assert capped.noise_std > free.noise_std
    loose = fitted(x, g, v, L=100 * L)
    np.testing.assert_allclose(loose.weights, free.weights, atol=1e-9)
    flat = fitted(x, g, v, L=1e-9)  # the mean is left
    np.testing.assert_allclose(flat.weights, np.tile((1 / v) / (1 / v).sum(), (16, 1)), atol=1e-9)


def test_contrasts_that_moved_almost_equally_far_are_told_apart() -> None:
    """Only where they cannot be, as with two points, is every gradient returned as it is."""
    x, rng = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.85]]), np.random.default_rng(0)
    g = rng.standard_normal((3, 2))
    assert not np.allclose(fitted(x, g).weights, np.eye(3), atol=1e-3)
    x[2, 1] = math.sqrt(0.75)  # all three equally far apart
    np.testing.assert_array_equal(fitted(x, g).weights, np.eye(3))


@pytest.mark.parametrize(("K", "d", "far"), [(4, 1, 20.0), (8, 2, 12.0), (8, 20, 5.0)])
def test_standard_errors_average_over_all_ratios(K: int, d: int, far: float) -> None:
    """Integrated over log t by brute force, with weights from dense matrices."""
    rng = np.random.default_rng(7 * K + d)
    x, g, *_ = drawn(rng, K, d)
    found = fitted(x, g)
    best = (found.scale / found.noise_std) ** 2
    logs, j = np.linspace(-far, far, 1001), K - 1
    z, v = x - x[j], np.ones(K)
    chance = np.array([likelihood(x, g, v, best * math.exp(u)) for u in logs])
    chance = np.exp(chance - chance.max())
    total = 0.0
    df = d * (K - 1)
    wider = (1.0 + 0.855 / df + 0.845 / df**2) ** 2
    for p, u in zip(chance / chance.sum(), logs, strict=True):
        S = np.eye(K) + best * math.exp(u) * z @ z.T
        w = np.linalg.solve(S, v)
        w, spread = w / w.sum(), 1.0 / w.sum()
        noise = contrasts(x, g, v, best * math.exp(u))[2] / df
        total += p * (wider * noise * spread + (((w - found.weights[j]) @ g) ** 2).mean())
    assert found.std[j] == pytest.approx(math.sqrt(total), rel=1e-3)


def test_the_gap_is_the_residual_of_the_weights() -> None:
    rng = np.random.default_rng(0)
    x, g, *_ = drawn(rng, 8, 3)
    found, X = fitted(x, g), distances(x) ** 2
    slope2, noise2, one = (found.scale**2) * GUARD, found.noise_std**2, np.ones(8)
    for size in (1e-9, 1e-5, 1e-2):
        W = found.weights + size * rng.standard_normal((8, 8))
        gap = _residuals(W, X / 2, one, one / 8, np.arange(8), slope2, noise2, np)
        for j in range(8):
            z = x - x[j]
            S = slope2 * z @ z.T + noise2 * np.eye(8)
            off = np.abs(S @ W[j] - (S @ W[j]).mean()).max() / np.abs(W[j]).max()
            assert off / (4.0 * np.abs(S).sum(1).max()) <= gap[j]
            assert gap[j] <= off / noise2


def test_variances_too_far_apart_are_said_and_do_no_harm() -> None:
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal((2, 6, 3))
    for decades in (40, 400):
        v = 10.0 ** np.linspace(-decades / 2, decades / 2 - 1, 6)
        found = coco.solve(x, g, model=coco.Gaussian(), noise_variance=v, throw=False)
        assert np.isfinite(found.gradients).all()
        assert found.status is coco.Status.STALLED
    denoiser = coco.Denoiser(model=coco.Gaussian())
    denoiser(x[0], g[0], noise_variance=v[0])
    denoiser(x[1], g[1], noise_variance=v[0])
    with pytest.warns(coco.ConvergenceWarning, match="relative gap"):
        theta = denoiser(x[2], g[2], noise_variance=v[-1])
    np.testing.assert_array_equal(theta, g[2])
