"""GradientDenoiser: the sliding window of a set of parameters, for hand-written loops.

A step makes the same four calls as `Denoiser`: measure, admit, ask the model, commit. The first
and the last go through blocks of parameters, which are in `vectors.py`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, is_
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
from coco_denoiser.torch.vectors import LARGE, Block, Rows
from coco_denoiser.typing import Float64, State

NonFinite = Literal["skip", "raise"]
_kind = attrgetter("shape", "dtype", "device")
_limit = attrgetter("limit")
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
        nonfinite: as for `CocoOptimizer`, but "raise" unless told otherwise. With "skip", as
            loops with a GradScaler need, `denoise` returns False.

    The other options are those of `CocoOptimizer`.
    """

    members: list[torch.Tensor]  # the parameters that are part of the point
    blocks: list[Block]  # where their history is kept
    skipped = in_a_row = 0  # observations that were refused
    _group: Any  # the ranks over which to add, or None

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
        self.process_group = process_group
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

    def __getstate__(self) -> State:
        # A process group belongs to its process; elsewhere it is derived anew, or set again.
        return {**self.__dict__, "process_group": None, "_group": None}

    def __setstate__(self, state: State) -> None:
        self.__dict__.update(state)
        self._group = sharding.group_of(self.members, None)

    def prepare(
        self, members: Sequence[torch.Tensor], blocks: Sequence[Block] | None = None
    ) -> None:
        """Start an empty window of these parameters, in the given room or in its own."""
        self.stream.reset()
        self.members, self.blocks = [], []  # frees their memory
        self._group = sharding.group_of(members, self.process_group)
        self.blocks = list(self.room(members) if blocks is None else blocks)
        self.members, self._kinds = list(members), list(map(_kind, members))
        self._d = sum(p.numel() * (2 if p.is_complex() else 1) for p in members)

    def room(self, members: Sequence[torch.Tensor]) -> list[Block]:
        """Make room for the history of these parameters."""
        group = sharding.group_of(members, self.process_group)
        alike: dict[tuple[Any, ...], list[torch.Tensor]] = {}  # by key, below
        for number, p in enumerate(members):
            alone = number if p.numel() >= LARGE else -1
            # Differences between close points need the digits of float32.
            wide = torch.float64 if p.dtype.to_real().itemsize > 4 else torch.float32
            # Complex ones apart: views of pairs must begin at an even entry.
            key = alone, p.is_complex(), p.device, wide, sharding.share(p, group)
            alike.setdefault(key, []).append(p)
        return [Block(p, self.stream.window.slots or 1, *key[3:]) for key, p in alike.items()]

    def covers(self, members: Sequence[torch.Tensor]) -> bool:
        """Return whether the point consists of these parameters, as they are now."""
        alike = list(map(_kind, members)) == self._kinds
        return alike and all(map(is_, members, self.members))

    def observe(
        self, noise_variance: object, sign: float = 1.0, *, idle: bool = False
    ) -> list[tuple[torch.Tensor, torch.Tensor]] | None:
        """Take an observation, the parameters with their gradients; under no_grad, change none.

        Args:
            noise_variance: a number, or a tensor with one entry.
            sign: -1 if the objective is maximised, and its negative has the curvature assumed.
            idle: whether gradients that are all zero are no observation: checkpointing makes such a
                step, with rates of zero, to create the state of an optimizer.

        Returns:
            The parameters whose gradient changes, each with the denoised one, valid until the next
            call; None if the observation was refused.
        """
        if isinstance(noise_variance, torch.Tensor) and noise_variance.numel() == 1:
            noise_variance = noise_variance.item()
        variance = check.positive("noise_variance", noise_variance)
        with self.stream as stream:
            members = [p for p in self.parameters if p.requires_grad or p.grad is not None]
            if not self.covers(members):
                self.prepare(members)
            new = list(map(Block.read, self.blocks))
            changed = self._take(new, stream.model.limits(sign), variance, idle=idle)
        if changed is None:
            self._refuse()
        else:
            stream.warn()
        return changed

    def _take(
        self, new: list[Rows], limits: Limits, variance: float, *, idle: bool
    ) -> list[tuple[torch.Tensor, torch.Tensor]] | None:
        """Measure the observation, admit it, ask the model, commit; None if it is refused."""
        stream, window = self.stream, self.stream.window
        stream.begin(limits)
        changed = list[tuple[torch.Tensor, torch.Tensor]]()
        fold, merged = window.fold(limits), None
        if fold is not None and fold[-1] > min(map(_limit, self.blocks)):
            return None  # so does what is merged, on every rank
        sums = self._measure(new, window.centre, window.leaving)
        # Only the last number, the sum of |g|, may overflow without harm.
        if sums.item(-2) > 0.0 or not np.isfinite(sums[:-1]).all():
            return None
        if sums.item(-1) == 0.0 and (not window.count or idle):
            return changed
        try:
            if fold is not None:
                merged = self._fold(new, *fold[:-1])
            if window.next >= window.all_variances.size:
                window.grow(window.next + 1)
            window.admit(sums, variance, limits, merged)
            window.d, stream.limits, self.in_a_row = self._d, limits, 0
            found, average = None, None
            if window.members > 1:
                found = stream.model.estimate(window, limits, stream.estimate)
            stream.estimate = found
            # That of a filter comes after the past, in whose slot the average is written.
            filters = window.newest == window.slots
            if found is not None and found.weights.item(window.newest) != 1.0:
                weights = np.ascontiguousarray(found.weights[: window.slots])
                average = weights, limits.centre - window.centre, filters
            for block, rows in zip(self.blocks, new, strict=True):
                block.commit(rows, window.centre, 0 if filters else window.newest, average)
                if average is not None:
                    changed += block.theta(rows)
            window.settle(limits)
        except BaseException:
            self.prepare([])  # tables and vectors may no longer belong together
            raise
        return changed

    def _fold(self, new: list[Rows], old: int, into: int, weight: float, shift: float) -> Float64:
        """Merge the oldest into the next, whose sums are returned, and write the new in its place.

        The merged one is an observation that is stored: a residual is a gradient for a centre of 0.
        """
        average = weight * np.eye(old + 1)[old], shift, True
        stored = list[Rows]()
        for block, rows in zip(self.blocks, new, strict=True):
            points, residuals = block.held
            stored.append((points[into], residuals[into], *rows[2:]))
            block.commit(stored[-1], 0.0, into, average)
            block.commit(rows, self.stream.window.centre, old, None)
        return self._measure(stored, 0.0, into)

    def _measure(self, new: list[Rows], centre: float, skip: int) -> Float64:
        """Add up over blocks and ranks.

        A step waits for the device, and for other ranks, here alone: twice where it folds.
        """
        used, total = self.stream.window.count, None
        for block, rows in zip(self.blocks, new, strict=True):
            part = block.measure(rows, used, centre, skip)
            total = part if total is None else total.to(part.device) + part
        if total is None:
            total = torch.zeros(3 * used + 2, dtype=torch.float64)
        if self._group is not None:
            dist.all_reduce(total, group=self._group)
        sums: Float64 = total.cpu().numpy()
        return sums

    def _refuse(self) -> None:
        """Raise, or count and warn, as was asked for."""
        self.skipped += 1
        self.in_a_row += 1
        if self.nonfinite == "raise":
            raise ValueError(
                f"{_REFUSED} (on this or on another rank). The window is as it was. Pass "
                "nonfinite='skip' to leave out such steps."
            )
        if self.in_a_row == _PATIENCE:
            warn_user(
                f"{_PATIENCE} observations in a row were skipped, and nothing is denoised: "
                f"{_REFUSED}."
            )
            return
        members = (t for p in self.parameters for t in (p.detach(), p.grad) if t is not None)
        if all(bool(torch.isfinite(sharding.local(t)).all()) for t in members):
            warn_user(f"an observation was skipped: {_REFUSED}. Rescale the loss, or use float64.")
