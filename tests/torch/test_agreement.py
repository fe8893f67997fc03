"""The same trajectory as in NumPy, and the same answer as in one batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

import coco_denoiser
from coco_denoiser import optimizers
from coco_denoiser.problems import LogisticRegression, Quadratic
from coco_denoiser.torch import CocoOptimizer, GradientDenoiser

PAIRS = [
    (optimizers.SGD, torch.optim.SGD, 0.5),
    (optimizers.Adam, torch.optim.Adam, 0.1),
]


def logistic() -> LogisticRegression:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((40, 12))
    labels = np.where(features @ rng.standard_normal(12) + rng.standard_normal(40) > 0, 1.0, -1.0)
    return LogisticRegression(features, labels)


PROBLEMS = {"quadratic": Quadratic.spaced(12, noise_std=1.0), "logistic": logistic()}


def split(x: NDArray[Any]) -> list[torch.Tensor]:
    """Cut a vector of 12 entries into parameters."""
    return [torch.tensor(x[:5]), torch.tensor(x[5:11]).view(2, 3), torch.tensor(x[11])]


def join(tensors: list[Any]) -> NDArray[np.float64]:
    return np.concatenate([t.detach().numpy().ravel() for t in tensors])


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize(("ours", "theirs", "step_size"), PAIRS)
@pytest.mark.parametrize("window", [2, 8])
def test_same_trajectory_as_in_numpy(
    name: str, ours: Any, theirs: Any, step_size: float, window: int
) -> None:
    problem: Any = PROBLEMS[name]
    denoiser = coco_denoiser.Denoiser(problem.L, window)
    numpy_optimizer = ours(step_size, denoiser=denoiser)
    x = np.full(12, 3.0)
    tensors = [nn.Parameter(t) for t in split(x)]
    optimizer = CocoOptimizer(theirs(tensors, lr=step_size), L=problem.L, window=window)
    rng, rng2 = np.random.default_rng(1), np.random.default_rng(1)
    denoised = 0
    for _ in range(40):
        x = numpy_optimizer.advance(problem, x, rng)
        for p, g in zip(tensors, split(problem.oracle(join(tensors), rng2)), strict=True):
            p.grad = g
        optimizer.step()
        denoised += optimizer.diagnostics().active > 0
        np.testing.assert_allclose(join(tensors), x, rtol=1e-8, atol=1e-9)
    assert denoised > 20


def schedule(values: list[float]) -> Callable[[], float]:
    left = iter(values)
    return lambda: next(left)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    window=st.integers(2, 5),
    bounds=st.lists(
        st.tuples(st.sampled_from([0.3, 1.0, 2.5]), st.sampled_from([-0.2, 0.0, 0.1])),
        min_size=8,
        max_size=8,
    ),
    maximize=st.booleans(),
)
def test_curvature_that_changes_gives_the_answer_of_one_batch(
    seed: int, window: int, bounds: list[tuple[float, float]], maximize: bool
) -> None:
    rng = np.random.default_rng(seed)
    points, gradients = rng.standard_normal((2, 8, 12))
    tensors = [nn.Parameter(t) for t in split(points[0])]
    denoiser = GradientDenoiser(
        tensors,
        L=schedule([L for L, _ in bounds]),
        mu=schedule([mu for _, mu in bounds]),
        window=window,
    )
    sign = -1.0 if maximize else 1.0
    for k, (L, mu) in enumerate(bounds):
        for p, x, g in zip(tensors, split(points[k]), split(sign * gradients[k]), strict=True):
            p.data.copy_(x)
            p.grad = g
        with torch.no_grad():
            changed = denoiser.observe(tensors, maximize=maximize)
        assert changed is not None
        found = {id(p): theta for p, theta in changed}
        theta = join([found.get(id(p), p.grad) for p in tensors])
        batch = slice(max(0, k + 1 - window), k + 1)
        expected = coco_denoiser.denoise(points[batch], gradients[batch], L=L, mu=mu)[-1]
        np.testing.assert_allclose(sign * theta, expected, atol=1e-6)


def test_denoise_in_place_is_what_the_optimizer_sees() -> None:
    problem = Quadratic.spaced(12, noise_std=1.0)
    x = np.full(12, 3.0)
    some, others = ([nn.Parameter(t) for t in split(x)] for _ in range(2))
    outer = CocoOptimizer(torch.optim.Adam(some, lr=0.1), L=1.0, window=4)
    inner, denoiser = torch.optim.Adam(others, lr=0.1), GradientDenoiser(others, L=1.0, window=4)
    rng, rng2 = np.random.default_rng(1), np.random.default_rng(1)
    for _ in range(10):
        for tensors, source in ((some, rng), (others, rng2)):
            for p, g in zip(tensors, split(problem.oracle(join(tensors), source)), strict=True):
                p.grad = g
        outer.step()
        place = [p.grad for p in others]
        assert denoiser.denoise()
        assert all(p.grad is g for p, g in zip(others, place, strict=True))
        inner.step()
        np.testing.assert_array_equal(join(some), join(others))


def test_groups_that_disagree_about_the_direction_are_refused() -> None:
    tensors = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    groups: list[dict[str, Any]] = [
        {"params": tensors[:1]},
        {"params": tensors[1:], "maximize": True},
    ]
    optimizer = CocoOptimizer(torch.optim.SGD(groups, lr=0.1), L=1.0)
    with pytest.raises(ValueError, match="maximize must be the same"):
        optimizer.step()


@pytest.mark.parametrize("L", [None, 2.0])
def test_the_gaussian_model_follows_the_numpy_trajectory(L: float | None) -> None:
    problem = Quadratic.spaced(12, noise_std=1.0)
    denoiser = coco_denoiser.Denoiser(L, 6, model="gaussian")
    tensors = [nn.Parameter(t) for t in split(np.full(12, 3.0))]
    sgd = torch.optim.SGD(tensors, lr=0.5)
    optimizer = CocoOptimizer(sgd, L=L, model="gaussian", window=6)
    rng, moved = np.random.default_rng(1), 0
    for _ in range(20):
        x = join(tensors)
        g = problem.oracle(x, rng)
        for p, part in zip(tensors, split(g), strict=True):
            p.grad = part
        optimizer.step()
        np.testing.assert_allclose(join(tensors), x - 0.5 * denoiser(x, g), atol=1e-7)
        moved += optimizer.diagnostics().moved > 0.0
    assert moved > 10
    assert optimizer.diagnostics().std == pytest.approx(denoiser.std, rel=1e-6)
    other = CocoOptimizer(torch.optim.SGD(tensors, lr=0.5), L=1.0, window=6)
    with pytest.raises(ValueError, match="saved with model=gaussian, this one has model=coco"):
        other.load_state_dict(optimizer.state_dict())
