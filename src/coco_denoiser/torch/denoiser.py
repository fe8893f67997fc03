"""GradientDenoiser: the sliding window of a set of parameters, for hand-written loops.

A step makes the same four calls as `Denoiser`: measure, admit, ask the model, commit. The tensors
are in `vectors.py`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist

from coco_denoiser import _validation as check
from coco_denoiser._warnings import warn_user
from coco_denoiser.models import Model, choose
from coco_denoiser.models.base import Bound, Limits
from coco_denoiser.solution import Status
from coco_denoiser.stream import Stream
from coco_denoiser.torch import checkpoint, sharding
from coco_denoiser.torch.vectors import TensorVectors
from coco_denoiser.typing import Float64, State

NonFinite = Literal["skip", "raise"]
_PATIENCE = 10  # observations that are skipped in a row before a warning
_REFUSED = (
    "parameters, gradients or gradients - c * parameters, c = (L + mu) / 2, hold an infinity or "
    "NaN, or exceed the largest magnitude that a window holds, "
    + " and ".join(f"{most:.0e} in {kind}" for kind, most in check.LIMITS.items())
)


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


class GradientDenoiser:
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
        self.model = choose(L, model)
        if window != "auto":
            check.count("window", window, optional=False)
        self.nonfinite = check.one_of("nonfinite", nonfinite, ("skip", "raise"))
        self.skipped = self.in_a_row = 0
        self.stream = Stream(self.model, window=window, forget=forget)
        self.vectors = TensorVectors(self.stream.window.slots or 1, process_group)

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
            self.stream.reset()
            self.vectors.prepare([])

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
        changed = observe(self, noise_variance)
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
            nbytes=sum(2 * block.points.nbytes for block in self.vectors.blocks),
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
            checkpoint.check(state_dict, self)()


def observe(
    denoiser: GradientDenoiser, noise_variance: object, groups: Sequence[State] = ()
) -> list[tuple[torch.Tensor, torch.Tensor]] | None:
    """Take an observation into a window; under no_grad, change no gradient.

    Args:
        denoiser: its parameters have their gradients.
        noise_variance: a number, or a tensor with one entry.
        groups: those of the optimizer that takes the step. Where they maximise, the negative of
            the function has curvature between mu and L. Where all learning rates are zero, zero
            gradients are no observation: checkpointing makes such a step to create the state.

    Returns:
        The parameters whose gradient changes, each with the denoised one, valid until the next
        call; None if the observation was refused.
    """
    if isinstance(noise_variance, torch.Tensor) and noise_variance.numel() == 1:
        noise_variance = noise_variance.item()
    variance = check.positive("noise_variance", noise_variance)
    maximize = {bool(group.get("maximize")) for group in groups}
    if len(maximize) > 1:
        raise ValueError(
            "maximize must be the same in all param_groups: gradients of a saddle-point "
            "problem are not co-coercive."
        )
    stream, vectors = denoiser.stream, denoiser.vectors
    with stream:
        members = [p for p in denoiser.parameters if p.requires_grad or p.grad is not None]
        if not vectors.covers(members):
            stream.reset()
            vectors.prepare(members)
        try:
            for block in vectors.blocks:
                block.hold()
            limits = denoiser.model.limits(-1.0 if True in maximize else 1.0)
            changed = _take(denoiser, limits, variance, groups)
        finally:
            for block in vectors.blocks:
                block.release()
    if changed is None:
        _refuse(denoiser)
    elif stream.estimate is not None and not stream.estimate.status.success:
        stream.warn()
    return changed


def _take(
    denoiser: GradientDenoiser, limits: Limits, variance: float, groups: Sequence[State]
) -> list[tuple[torch.Tensor, torch.Tensor]] | None:
    """Measure the observation, admit it, ask the model, commit; None if it is refused."""
    stream, vectors, window = denoiser.stream, denoiser.vectors, denoiser.stream.window
    stream.begin(limits)
    used, fold, merged = window.count, window.fold(limits), None
    sums = vectors.measure(used, window.centre, window.leaving, fold[-1] if fold else 0.0)
    # Only the last number, the sum of |g|, may overflow without harm.
    if sums.item(-2) > 0.0 or not np.isfinite(sums[:-1]).all():
        return None
    if sums.item(-1) == 0.0 and (not used or {float(g.get("lr", 1.0)) for g in groups} == {0.0}):
        return []
    try:
        if fold is not None:
            old, new, weight, shift, _ = fold
            for block in vectors.blocks:
                block.commit(0.0, new, (weight * np.eye(old + 1)[old], shift, True), at=new)
                block.commit(window.centre, old, None)
            merged = vectors.measure(used, 0.0, new, at=new)
        if window.next >= window.all_variances.size:
            window.grow(window.next + 1)
        window.admit(sums, variance, limits, merged)
        window.d, stream.limits, denoiser.in_a_row = vectors.d, limits, 0
        found, average = None, None
        if window.members > 1:
            found = denoiser.model.estimate(window, limits, stream.estimate)
        stream.estimate = found
        # That of a filter comes after the past, in whose slot the average is written.
        filters = window.newest == vectors.slots
        if found is not None and found.weights.item(window.newest) != 1.0:
            weights = np.ascontiguousarray(found.weights[: vectors.slots])
            average = weights, limits.centre - window.centre, filters
        for block in vectors.blocks:
            block.commit(window.centre, 0 if filters else window.newest, average)
        window.settle(limits)
    except BaseException:
        stream.reset()  # tables and vectors may no longer belong together
        vectors.prepare([])
        raise
    return [pair for block in vectors.blocks if average for pair in block.theta()]


def _refuse(denoiser: GradientDenoiser) -> None:
    """Raise, or count and warn, as was asked for."""
    denoiser.skipped += 1
    denoiser.in_a_row += 1
    if denoiser.nonfinite == "raise":
        raise ValueError(
            f"{_REFUSED} (on this or on another rank). The window is as it was. Pass "
            "nonfinite='skip' to leave out such steps."
        )
    if denoiser.in_a_row == _PATIENCE:
        warn_user(
            f"{_PATIENCE} observations in a row were skipped, and nothing is denoised: {_REFUSED}."
        )
        return
    members = (t for p in denoiser.parameters for t in (p.detach(), p.grad) if t is not None)
    if all(bool(torch.isfinite(sharding.local(t)).all()) for t in members):
        warn_user(f"an observation was skipped: {_REFUSED}. Rescale the loss, or use float64.")
