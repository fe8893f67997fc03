"""Two points: the closed form.

Two residuals are further apart than their bound allows, ||h_1 - h_2|| > rho. The nearest two
that are not (Theorem 3.1 of the paper, for any curvature bounds and any two noise variances)
lie on the segment between them, and the noisier one moves more:

    phi_1 = h_1 - a_1 t (h_1 - h_2),    phi_2 = h_2 + a_2 t (h_1 - h_2),
    t = 1 - rho / ||h_1 - h_2||,        a_i = v_i / (v_1 + v_2).

If the noise has a covariance, one scalar equation is left to solve.
"""

import numpy as np

from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64

_STEPS = 200  # of Newton's method on the scalar equation, which takes about five


def solve(problem: Problem, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multiplier, as a (2, 2) table, and the number of iterations."""
    del tol, max_iter
    # ||v(t)|| = rho for t = lam (1 / n_1 + 1 / n_2), by Newton's method on 1 / ||v||. Coordinate c
    # of the difference becomes v_c = d_c s_c / (s_c + t). As in a trust region, 1 / ||v|| is
    # concave and nearly linear: from t = 0 the root is approached from below. Without a
    # covariance it is linear, and one step is the closed form.
    (n, m), s, rho = problem.precisions, problem.coordinate_precisions, problem.bounds[0, 1]
    d = problem.residuals[0] - problem.residuals[1]
    t, steps = 0.0, 0
    while steps < _STEPS:
        v = d * (s / (s + t))
        w = float(np.sqrt(v @ v))
        if w <= rho * (1.0 + 1e-15):
            break
        t += (w / rho - 1.0) * w * w / float(np.sum(v * v / (s + t)))
        steps += 1
    lam = t / (1.0 / n + 1.0 / m)
    return np.array([[0.0, lam], [lam, 0.0]]), steps
