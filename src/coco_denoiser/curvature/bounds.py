"""Curvature: the two numbers that every denoiser asks for."""

from typing import NamedTuple


class Curvature(NamedTuple):
    r"""Bounds on the eigenvalues $\lambda$ of the Hessian: $\mu \le \lambda \le L$."""

    L: float
    mu: float
