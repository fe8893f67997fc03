"""One mu for every kind of function, in a batch, in a stream and by the command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coco_denoiser as coco
from coco_denoiser.cli import main
from coco_denoiser.typing import Float64

DIMENSION = 4
SLOPES = np.linspace(1.0, 1.0 / 3.0, DIMENSION)
# A gradient, and the largest mu that holds with L = 1.
KINDS: dict[str, tuple[Callable[[Float64], Float64], float]] = {
    "strongly convex": (lambda x: SLOPES * x, 1.0 / 3.0),
    "convex": (np.tanh, 0.0),
    "weakly convex": (lambda x: np.where(np.arange(DIMENSION) == 1, -0.25, 1.0) * x, -0.25),
    "merely smooth": (np.sin, -1.0),
}


def batch(x: Float64, g: Float64, mu: float, _: Path) -> Float64:
    return np.asarray(coco.denoise(x, g, L=1.0, mu=mu)[-1])


def stream(x: Float64, g: Float64, mu: float, _: Path) -> Float64:
    denoiser = coco.Denoiser(1.0, len(x), mu=mu)
    return np.asarray([denoiser(*pair) for pair in zip(x, g, strict=True)][-1])


def command(x: Float64, g: Float64, mu: float, folder: Path) -> Float64:
    np.savez(folder / "seen.npz", points=x, gradients=g)
    files = [str(folder / "seen.npz"), "-o", str(folder / "out.npz")]
    assert main(["denoise", *files, "--L", "1", f"--mu={mu!r}"]) == 0
    with np.load(folder / "out.npz") as found:
        return np.asarray(found["gradients"][-1])


@pytest.mark.parametrize(
    ("way", "kind"),
    [*((batch, kind) for kind in KINDS), (stream, "weakly convex"), (command, "weakly convex")],
)
def test_true_gradients_stay_with_the_right_bounds_and_move_with_wrong_ones(
    way: Any, kind: str, tmp_path: Path
) -> None:
    gradient, mu = KINDS[kind]
    x = np.random.default_rng(0).uniform(-6.0, 6.0, (6, DIMENSION))
    # The newest point lies next to the one before, along the coordinate of least curvature,
    # there being where a mu that is too large is refuted.
    least = {"strongly convex": 3, "weakly convex": 1}.get(kind, 0)
    x[-2:] = 0.0
    x[-2:, least] = {"convex": (5.0, 6.0), "merely smooth": (3.0, 3.3)}.get(kind, (1.0, 2.0))
    g = gradient(x)
    assert np.linalg.norm(way(x, g, mu, tmp_path) - g[-1]) <= 1e-6
    wrong = mu + 0.3
    assert np.linalg.norm(way(x, g, wrong, tmp_path) - g[-1]) >= 1e-3


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32), K=st.integers(2, 6), slack=st.sampled_from([0.0, 0.5]))
@settings(max_examples=10)
def test_with_bounds_that_hold_no_answer_is_further_from_the_truth(
    kind: str, seed: int, K: int, slack: float
) -> None:
    # The truth is feasible, and projecting on a convex set brings nearer to all of its points.
    gradient, mu = KINDS[kind]
    rng = np.random.default_rng(seed)
    x = rng.uniform(-6.0, 6.0, (K, DIMENSION))
    g = gradient(x) + rng.normal(size=x.shape)
    theta = coco.denoise(x, g, L=1.0, mu=mu - slack)
    assert np.linalg.norm(theta - gradient(x)) <= np.linalg.norm(g - gradient(x)) * (1.0 + 1e-6)
