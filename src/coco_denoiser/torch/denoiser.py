"""GradientDenoiser: the sliding window of a set of parameters, for hand-written loops."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist

from coco_denoiser import _validation as check
from coco_denoiser.models import Model, choose
from coco_denoiser.models.base import Bound
from coco_denoiser.solution import Status
from coco_denoiser.stream import Stream
from coco_denoiser.torch import checkpoint
from coco_denoiser.torch.stream import ParameterStream
from coco_denoiser.typing import Float64, State

NonFinite = Literal["skip", "raise"]
_Function = TypeVar("_Function", bound=Callable[..., Any])  # with whatever it takes and returns


def not_compiled(function: _Function) -> _Function:
    """Keep `torch.compile` out of a function; PyTorch's decorator loses its signature."""
    return cast("_Function", torch.compiler.disable(function))  # type: ignore[no-untyped-call]  # PyTorch's


class Diagnostics(NamedTuple):
    """What the last step did, and what the window costs.

    Examples:
        >>> import torch
        >>> from coco_denoiser.torch import GradientDenoiser
        >>> x = torch.nn.Parameter(torch.zeros(2))
        >>> denoiser = GradientDenoiser([x], L=1.0)
        >>> for gradient in ([1.0, 0.0], [0.0, 1.0]):
        ...     x.grad = torch.tensor(gradient)
        ...     found = denoiser.denoise()
        >>> found = denoiser.diagnostics()
        >>> found.weights, found.status.success
        (array([0.5, 0.5]), True)

    Attributes:
        weights: (observations,), how the last gradient was averaged, oldest first; the last
            entry is the weight of the newest observation itself. With window=2 and folding
            there are two, the first being that of the past as a whole.
        moved: distance between the last gradient and the denoised one.
        L: upper bound on the curvature at the last step.
        std: standard error of every coordinate of the denoised gradient; NaN if the model does
            not tell.
        gap: relative duality gap of the last answer, by its certificate; for the Gaussian
            model, the relative residual of its linear system. NaN before there is an answer.
        violation: worst relative violation of a curvature bound; NaN for the Gaussian model.
        status: how the solver ended; None before there is an answer.
        skipped: how many observations were refused: not finite, or too large for a window.
        nbytes: memory that the window takes on this rank: 2 K copies of the parameters; two
            with window=2 and folding.
    """

    weights: Float64
    moved: float
    L: float
    std: float
    gap: float
    violation: float
    status: Status | None
    skipped: int
    nbytes: int


class GradientDenoiser(ParameterStream):
    r"""Denoise the gradients of parameters, each together with the K - 1 observed before it.

    All parameters together are one point $x$, all their gradients one vector $g$. Every call
    solves the problem of `CocoOptimizer` over the last K observations, and the newest $\theta$
    takes the place of the gradients. For loops that are written by hand:

        denoiser = GradientDenoiser(model.parameters(), L=4.0, nonfinite="skip")
        ...
        loss.backward()
        scaler.unscale_(optimizer)
        denoiser.denoise()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)

    Parameters that are frozen (no `requires_grad`, no gradient) are not part of the point and
    take no memory. A gradient that is None counts as zero.

    Examples:
        Two gradients at the same point are averaged:

        >>> import torch
        >>> from coco_denoiser.torch import GradientDenoiser
        >>> x = torch.nn.Parameter(torch.zeros(2))
        >>> denoiser = GradientDenoiser([x], L=1.0)
        >>> for gradient in ([1.0, 0.0], [0.0, 1.0]):
        ...     x.grad = torch.tensor(gradient)
        ...     found = denoiser.denoise()
        >>> x.grad
        tensor([0.5000, 0.5000])

    Args:
        parameters: the parameters; one tensor is one parameter.
        nonfinite: what to do with an observation that has an infinity or NaN, or exceeds the
            largest magnitude that a window holds (1e37 in float32, 1e150 in float64), and so
            never enters: "raise" ValueError, or "skip" it, as loops with a GradScaler need:
            gradients are then unchanged. A finite one gives a warning, and so do ten in a row.

    The other options are those of `CocoOptimizer`.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        L: Bound | None = None,
        model: Model | None = None,
        window: int | Literal["auto"] = "auto",
        nonfinite: NonFinite = "raise",
        process_group: dist.ProcessGroup | None = None,
        forget: Literal["drop", "fold"] = "drop",
    ) -> None:
        self.parameters = [parameters] if torch.is_tensor(parameters) else list(parameters)
        for p in self.parameters:
            if not isinstance(p, torch.Tensor):
                raise TypeError(
                    f"parameters must be tensors, got a {type(p).__name__}. Pass "
                    "model.parameters()."
                )
        if window != "auto":
            check.count("window", window, optional=False)
        self.nonfinite = check.one_of("nonfinite", nonfinite, ("skip", "raise"))
        self.stream = Stream(choose(L, model), window=window, forget=forget)
        self.slots, self.process_group = self.stream.window.slots or 1, process_group
        self.prepare([])

    @property
    def window(self) -> int:
        """How many observations are kept, K."""
        return self.stream.size or 1

    def __repr__(self) -> str:
        """Show the settings, and how many observations are held."""
        settings = f"{self.stream}, nonfinite={self.nonfinite!r}"
        return f"<GradientDenoiser({settings}) with {len(self)} observations>"

    def reset(self) -> None:
        """Forget every observation, and free its memory."""
        with self.stream:
            self.prepare([])

    def __len__(self) -> int:
        """Return the number of observations that are held; folded ones count as one."""
        return self.stream.window.count

    def __bool__(self) -> bool:
        """Return True, even when empty."""
        return True

    @not_compiled
    @torch.no_grad()
    def denoise(self, *, noise_variance: float | torch.Tensor = 1.0) -> bool:
        """Put the denoised gradients in place of the gradients.

        Args:
            noise_variance: noise variance of this observation, relative to the others'.

        Returns:
            False if they are refused, as `nonfinite` says: gradients and window are as they were.
        """
        changed = self.observe(noise_variance)
        for parameter, theta in changed or ():
            try:
                parameter.grad.copy_(theta)  # type: ignore[union-attr]  # see below
            except (AttributeError, RuntimeError):  # None, or expanded: there is no room in it
                parameter.grad = theta.clone()
        return changed is not None

    def diagnostics(self) -> Diagnostics:
        """Return what the last step did, and what the window costs."""
        stream, found = self.stream, self.stream.estimate
        return Diagnostics(
            weights=stream.window.in_order(found),
            moved=stream.window.moved(found, stream.limits.centre),
            L=stream.limits.L,
            std=found.std if found else math.nan,
            gap=found.gap if found else math.nan,
            violation=found.violation if found else math.nan,
            status=found.status if found else None,
            skipped=self.skipped,
            nbytes=sum(2 * block.points.nbytes for block in self.blocks),
        )

    def state_dict(self) -> State:
        """Return the window in the layout of an optimizer's state_dict.

        As in PyTorch, tensors are those in use, not copies.
        """
        names = list(range(len(self.parameters)))
        state: State = {"state": {}, "param_groups": [{"params": names}]}
        checkpoint.insert(state, self)
        return state

    def load_state_dict(self, state_dict: State) -> None:
        """Go back to a saved state of the same parameters and settings.

        Raises:
            ValueError: if the state is damaged or of other settings; nothing has changed.
        """
        with self.stream:
            checkpoint.read(state_dict, self)()
