"""Compile what the experiments call, each function in one process, before they all need it.

Processes that meet the same function for the first time at once would each compile it, and each
for as long. Here one is given the core and another the rest; afterwards all find both on disk.
"""

import numpy as np

from coco_denoiser import Denoiser, denoise_pairs
from coco_denoiser.constraints import reduce
from coco_denoiser.solvers import fdpg, one_function
from coco_denoiser.typing import Float64

PARTS = ("core", "rest")


def compile_part(name: str) -> None:
    """Compile one of the PARTS."""
    {"core": _core, "rest": _rest}[name]()


def _core() -> None:
    """Compile streams and the exact method, for many dimensions and for few."""
    for denoiser, dimension in (
        (Denoiser(L=1.0, window=3, forget="fold"), 10),
        (Denoiser(L=1.0, window=3), 2),
        (Denoiser(window=3), 10),
    ):
        for x, g in zip(*_observations(dimension), strict=True):
            denoiser(x, g)


def _rest() -> None:
    """Compile the closed form, the filter, the paper's method and that of the tight set."""
    points, gradients = _observations(3)
    denoise_pairs(points[:2], gradients[:2], L=1.0)
    denoiser = Denoiser(L=1.0, window=2, forget="fold")
    for x, g in zip(points, gradients, strict=True):
        denoiser(x, g)
    K = len(points)
    window, _ = reduce(points, gradients, L=1.0, mu=0.0, variances=np.ones(K), one_function=True)
    fdpg.solve(window, tol=1.0, max_iter=1)
    start = 0.1 * window.residuals, np.ones((K, K))
    one_function.solve(window, start, tol=1.0, max_iter=1)


def _observations(dimension: int) -> Float64:
    """Return points and gradients, (2, 4, d), no pair of which is feasible."""
    noise = np.random.default_rng(0).normal(size=(2, 4, dimension))
    return np.stack((1e-3 * noise[0], noise[1]))
