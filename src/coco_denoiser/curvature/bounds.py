"""Curvature: the two numbers that every denoiser asks for."""

from typing import NamedTuple


class Curvature(NamedTuple):
    """Bounds on the eigenvalues of the Hessian: mu <= eigenvalue <= L."""

    L: float
    mu: float
