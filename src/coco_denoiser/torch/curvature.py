"""Curvature of a loss from Hessian-vector products of autograd."""

from collections.abc import Callable, Iterable

import torch

from coco_denoiser.curvature import Curvature, spectrum


def hessian_bounds(
    loss: Callable[[], torch.Tensor],
    parameters: Iterable[torch.Tensor],
    *,
    seed: int = 0,
    steps: int = 32,
    failure: float = 1e-3,
) -> Curvature:
    """Return L and mu of a loss at the present values of its parameters.

    Both hold with probability 1 - failure, there and for the data that `loss` sees; elsewhere the
    curvature differs. See `coco_denoiser.curvature.spectrum`.

    Args:
        loss: evaluates the model and returns the loss; called once, without backward.
        parameters: the parameters; those that need no gradient are left out.
        seed: of the random start.
        steps: Hessian-vector products, each about two backward passes.
        failure: the probability that one of the bounds does not hold.

    Examples:
        >>> import torch
        >>> from coco_denoiser.torch import hessian_bounds
        >>> x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
        >>> L, mu = hessian_bounds(lambda: 3.0 * x[0] ** 2 + x[1] ** 2, [x])
        >>> round(L, 9), round(mu, 9)
        (6.0, 2.0)
    """
    members = [p for p in parameters if p.requires_grad]
    with torch.enable_grad():
        found = torch.autograd.grad(loss(), members, create_graph=True, materialize_grads=True)
        gradient = torch.cat([g.reshape(-1) for g in found])

    def product(v: torch.Tensor) -> torch.Tensor:
        if not gradient.requires_grad:
            return torch.zeros_like(v)
        parts = torch.autograd.grad(gradient, members, v, retain_graph=True, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])

    source = torch.Generator().manual_seed(seed)
    start = torch.randn(gradient.numel(), generator=source, dtype=torch.float64)
    return spectrum(product, start.to(gradient), steps=steps, failure=failure)
