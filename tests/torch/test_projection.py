"""A projection of the parameters after a denoised step."""

import numpy as np
import torch

from coco_denoiser import Denoiser
from coco_denoiser.optimizers import SGD, run
from coco_denoiser.torch import CocoOptimizer

NOISE = 0.3 * np.random.default_rng(0).standard_normal((30, 5))
CENTRE, STEP = np.linspace(-0.5, 2.0, 5), 0.8


def test_parameters_projected_after_the_step_give_the_path_of_run() -> None:
    x = torch.nn.Parameter(torch.full((5,), 0.2, dtype=torch.float64))
    optimizer = CocoOptimizer(torch.optim.SGD([x], lr=STEP), L=1.0, window=4)
    path = [x.detach().numpy().copy()]
    for noise in NOISE:
        x.grad = x.detach() - torch.from_numpy(CENTRE - noise)
        optimizer.step()
        with torch.no_grad():
            x.clamp_(min=0.0)
        path.append(x.detach().numpy().copy())
    noises = iter(NOISE)
    expected = run(
        SGD(STEP, denoiser=Denoiser(1.0, 4)),
        lambda x: x - CENTRE + next(noises),
        np.full(5, 0.2),
        steps=30,
        project=lambda x: np.maximum(x, 0.0),
    ).iterates
    np.testing.assert_allclose(path, expected, atol=1e-9)
    assert np.any(expected[-10:] == 0.0)
