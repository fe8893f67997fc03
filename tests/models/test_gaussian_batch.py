"""The Gaussian model of a batch, and in PyTorch."""

import numpy as np
import pytest
import torch

import coco_denoiser as coco
from coco_denoiser.torch import CocoOptimizer


def window(K: int = 10, d: int = 4) -> tuple[coco.typing.Array, coco.typing.Array]:
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.standard_normal((K, d)), axis=0)
    return x, x @ np.diag(np.linspace(1.0, 0.3, d)) + rng.standard_normal((K, d))


def test_without_a_bound_a_batch_is_estimated() -> None:
    x, g = window()
    found = coco.solve(x, g, model="gaussian")
    assert found.status is coco.Status.ESTIMATED
    assert found.status.success
    assert "Gaussian" in str(found.status)
    assert found.method == "gaussian"
    assert np.isnan(found.multipliers).all()
    assert np.isnan(found.violation)
    assert found.gap < 1e-12
    assert found.std.shape == (10,)
    np.testing.assert_allclose(found.weights @ g, found.gradients, atol=1e-12)
    np.testing.assert_array_equal(coco.denoise(x, g, model="gaussian"), found.gradients)
    error, raw = (((v - x @ np.diag(np.linspace(1.0, 0.3, 4))) ** 2).sum() for v in
                  (found.gradients, g))  # fmt: skip
    assert error < 0.8 * raw


def test_a_stream_knows_its_whole_window() -> None:
    x, g = window()
    v = np.random.default_rng(1).uniform(0.5, 2.0, 10)
    denoiser = coco.Denoiser(model="gaussian", window=6, noise_std=1.5)
    for row in zip(x, g, v, strict=True):
        last = denoiser(row[0], row[1], noise_variance=float(row[2]))
    found = denoiser.solution
    expected = coco.solve(x[4:], g[4:], noise_variance=v[4:], noise_std=1.5, model="gaussian")
    np.testing.assert_allclose(found.gradients, expected.gradients, atol=1e-9)
    np.testing.assert_allclose(found.gradients[-1], last, atol=1e-9)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-9)
    np.testing.assert_allclose(found.std, expected.std, rtol=1e-5)
    assert found.noise_std == pytest.approx(1.5)
    assert found.curvature == pytest.approx(expected.curvature, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "gaussian", "mu": 0.1}, "mu"),
        ({"model": "gaussian", "neighbors": 3}, "neighbors"),
        ({"model": "gaussian", "covariance": np.ones(4)}, "covariance"),
        ({"model": "gaussian", "method": "newton"}, "method"),
        ({"model": "cocoercive"}, "Pass L"),
        ({}, "Pass L for the paper's method, or model='gaussian'"),
        ({"L": 1.0, "noise_std": 1.0}, "noise_std"),
        ({"model": "gaussian", "noise_std": -1.0}, "noise_std"),
        ({"model": "gaussian", "L": 0.0}, "L must be"),
    ],
)
def test_what_does_not_belong_to_a_batch_is_refused(options: dict[str, object], words: str) -> None:
    x, g = window()
    with pytest.raises(ValueError, match=words):
        coco.solve(x, g, **options)  # type: ignore[arg-type]


def test_huge_and_tiny_numbers_are_estimated_alike() -> None:
    x, g = window()
    found = coco.solve(x, g, model="gaussian")
    for a, b in ((1e200, 1e-200), (1e-200, 1e200)):
        scaled = coco.solve(a * x, b * g, model="gaussian")
        np.testing.assert_allclose(scaled.weights, found.weights, atol=1e-9)


def test_an_optimizer_without_a_bound_has_the_gaussian_model() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = CocoOptimizer(torch.optim.SGD([parameter], lr=0.1), model="gaussian")
    assert optimizer.denoiser.window == coco.Denoiser(model="gaussian").window == 32
    assert "model='gaussian'" in repr(optimizer)
    for k in range(5):
        parameter.grad = torch.ones(3) * (1 + k % 2)
        optimizer.step()
    assert torch.isfinite(parameter).all()
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    with pytest.warns(UserWarning, match="normalises gradients.*meant for plain SGD"):
        CocoOptimizer(torch.optim.AdamW([parameter], lr=0.1), model="gaussian")
    with pytest.warns(UserWarning, match="has momentum.*meant for SGD without"):
        CocoOptimizer(torch.optim.SGD([parameter], lr=0.1, momentum=0.9), model="gaussian")
