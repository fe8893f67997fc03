"""Substitution, which NumPy lacks."""

from coco_denoiser.typing import Float64


def substitute(U: Float64, x: Float64) -> None:
    """Overwrite x by (U'U)^-1 x."""
    for k in range(x.size):
        x[k] /= U[k, k]
        x[k + 1 :] -= x[k] * U[k, k + 1 :]
    for k in range(x.size - 1, -1, -1):
        x[k] = (x[k] - U[k, k + 1 :] @ x[k + 1 :]) / U[k, k]
