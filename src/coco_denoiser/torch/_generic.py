"""The two passes over a window on any device, in PyTorch's own operations.

The same two functions as in `coco_denoiser.torch._kernels`, which says what they are for. Here
nothing waits for the device: what is returned is read once, by the caller.
"""

import torch

from coco_denoiser.torch._kernels import Plain
from coco_denoiser.typing import Float64, Int64

# Numbers of one row for which differences are formed at a time: temporaries stay small.
_BLOCK = 1 << 20


def hold(tensors: Plain) -> Plain:
    """Return tensors as the passes need them: as they are."""
    return tensors


def measure(
    points: torch.Tensor,
    residuals: torch.Tensor,
    x: Plain,
    g: Plain,
    *,
    offsets: Int64,
    sizes: Int64,
    shares: Float64,
    centre: float,
    count: int,
    skip: int,
) -> torch.Tensor:
    """Return (2K + 2,): squared distances, a number that is NaN or 0, one that is 0 if g is."""
    K = points.shape[0]
    out = torch.zeros(2 * K + 2, dtype=torch.float64, device=points.device)
    for t, a, b in _blocks(sizes):
        X, G, H = _observation(x, g, t, a, b, centre)
        out[2 * K] += (H * 0.0).sum(dtype=torch.float64)
        if G is not None:
            out[2 * K + 1] += G.abs().sum(dtype=torch.float64)
        where = slice(int(offsets[t]) + a, int(offsets[t]) + b)
        for row, ring, new in ((out[:K], points, X), (out[K : 2 * K], residuals, H)):
            differences = ring[:count, where] - new
            norms = torch.linalg.vector_norm(differences, dim=1, dtype=torch.float64)
            row[:count] += float(shares[t]) * norms.square()
    if skip >= 0:
        out[[skip, K + skip]] = 0.0
    return out


def commit(
    points: torch.Tensor,
    residuals: torch.Tensor,
    x: Plain,
    g: Plain,
    *,
    offsets: Int64,
    sizes: Int64,
    centre: float,
    slot: int,
    weights: Float64 | None,
    out: torch.Tensor | None,
) -> None:
    """Write an observation into its slot; if there are weights, its denoised gradient to out."""
    row = None
    if weights is not None:
        row = torch.from_numpy(weights).to(residuals.device, residuals.dtype, non_blocking=True)
    for t, a, b in _blocks(sizes):
        X, G, H = _observation(x, g, t, a, b, centre)
        where = slice(int(offsets[t]) + a, int(offsets[t]) + b)
        points[slot, where] = X
        residuals[slot, where] = H
        if row is not None and out is not None:
            theta = out[where]
            torch.mv((residuals[: row.numel(), where] - H).T, row, out=theta)
            if G is not None:
                theta += G


def advance(
    points: torch.Tensor,
    residuals: torch.Tensor,
    x: Plain,
    g: Plain,
    *,
    offsets: Int64,
    sizes: Int64,
    centre: float,
    weight: float,
    out: torch.Tensor,
) -> None:
    """Mix the one slot into an observation, which takes its place; write its gradient to out."""
    for t, a, b in _blocks(sizes):
        X, G, H = _observation(x, g, t, a, b, centre)
        where = slice(int(offsets[t]) + a, int(offsets[t]) + b)
        move = weight * (residuals[0, where] - H)
        points[0, where] = X
        residuals[0, where] = H + move
        out[where] = move if G is None else G + move


def _blocks(sizes: Int64) -> list[tuple[int, int, int]]:
    return [
        (t, a, min(a + _BLOCK, int(size)))
        for t, size in enumerate(sizes)
        for a in range(0, int(size), _BLOCK)
    ]


def _observation(
    x: Plain, g: Plain, t: int, a: int, b: int, centre: float
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Return a block of the point, of the gradient and of the residual."""
    point, gradient = x[t], g[t]
    if point is None:
        raise TypeError("x must hold tensors only.")
    X = point.detach().reshape(-1)[a:b]
    if gradient is None:
        return X, None, X * -centre
    G = gradient.detach().reshape(-1)[a:b]
    return X, G, torch.sub(G, X, alpha=centre)
