"""Projecting the parameters after the step: the next observation is at the projected point."""

import numpy as np
import torch

from coco_denoiser import Denoiser
from coco_denoiser.optimizers import SGD, run
from coco_denoiser.torch import CocoOptimizer
from coco_denoiser.typing import Array

NOISE = np.random.default_rng(0).standard_normal((40, 5))
CENTRE = np.linspace(-0.5, 2.0, 5)


def test_a_projection_after_the_step_gives_the_path_of_run() -> None:
    weights = torch.nn.Parameter(torch.zeros(5, dtype=torch.float64))
    optimizer = CocoOptimizer(torch.optim.SGD([weights], lr=0.8), L=1.0, window=8)
    path = [weights.detach().clone().numpy()]
    for noise in NOISE:
        optimizer.zero_grad()
        loss = 0.5 * ((weights - torch.from_numpy(CENTRE)) ** 2).sum()
        (loss + weights @ torch.from_numpy(noise)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            weights.clamp_(0.0, 1.0)
        path.append(weights.detach().clone().numpy())
    noises = iter(NOISE)

    def gradient(x: Array) -> Array:
        return np.asarray(x - CENTRE + next(noises))

    denoised = SGD(0.8, denoiser=Denoiser(1.0, 8))
    expected = run(
        denoised, gradient, np.zeros(5), steps=40, project=lambda x: np.clip(x, 0.0, 1.0)
    )
    np.testing.assert_allclose(path, expected.iterates, atol=1e-6)
    assert np.any(expected.iterates[-10:] == 1.0)
