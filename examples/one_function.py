"""Project noisy gradients onto those that a single function can have, with CVXPY.

The library compares gradients pair by pair. Even if every pair is co-coercive, there may be no
function that has all of these gradients. For a convex function with curvature at most L there is
one if and only if values f exist with, for every ordered pair (Taylor, Hendrickx and Glineur,
2017, https://arxiv.org/abs/1502.05666),

    f_i >= f_j + <theta_j, x_i - x_j> + ||theta_i - theta_j||^2 / (2 L).

This script projects onto that smaller set. It needs CVXPY: `pip install cvxpy`.
"""

import argparse
from typing import Any

import cvxpy
import numpy as np

import coco_denoiser as coco

cp: Any = cvxpy  # its names are built at run time, out of sight of type checkers


def project(points: np.ndarray, gradients: np.ndarray, L: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest gradients of one function, (K, d), and its values there, (K,).

    Args:
        points: (K, d), where the gradients were observed; best centred and of size 1.
        gradients: (K, d), the noisy gradients.
        L: upper bound on the curvature.
    """
    K, d = points.shape
    theta, f = cp.Variable((K, d)), cp.Variable(K)
    constraints = [
        f[i]
        >= f[j] + theta[j] @ (points[i] - points[j]) + cp.sum_squares(theta[i] - theta[j]) / (2 * L)
        for i in range(K)
        for j in range(K)
        if i != j
    ]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(theta - gradients)), constraints)
    problem.solve(solver=cp.CLARABEL)
    return theta.value, f.value - f.value.mean()


def main() -> None:
    """Compare the two sets on the points of an SGD path."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--points", type=int, default=8, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the noise (default: %(default)s)")
    options = parser.parse_args()
    rng, curvature = np.random.default_rng(options.seed), np.linspace(1.0, 1.0 / 3.0, 10)
    x, points, gradients = np.zeros(10), [], []
    for _ in range(options.points):
        points.append(x)
        gradients.append(curvature * x + rng.normal(size=10))
        x = x - gradients[-1]
    x, g = np.array(points), np.array(gradients)
    tight, _ = project(x, g, L=1.0)
    for name, theta in (
        ("noisy", g),
        ("pairwise", coco.denoise(x, g, L=1.0)),
        ("one function", tight),
    ):
        print(f"{name:>12}: squared error {np.sum((theta - curvature * x) ** 2):.2f}")  # noqa: T201


if __name__ == "__main__":
    main()
