"""The stream of a set of parameters: on any devices, on any number of ranks.

A step makes the same four calls as `Denoiser`: measure, admit, ask the model, commit. The first
and the last go through blocks of parameters, which are in `vectors.py`.
"""

from collections.abc import Sequence
from operator import attrgetter, is_
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from coco_denoiser import _validation as check
from coco_denoiser._warnings import warn_user
from coco_denoiser.models.base import Limits
from coco_denoiser.stream import Stream
from coco_denoiser.torch import sharding
from coco_denoiser.torch.vectors import LARGE, Block, Rows, dtype_of
from coco_denoiser.typing import Float64, State

_kind = attrgetter("shape", "dtype", "device")
_PATIENCE = 10  # observations that are skipped in a row before a warning
_REFUSED = (
    "parameters, gradients or gradients - c * parameters, c = (L + mu) / 2, hold an infinity or "
    "NaN, or exceed the largest magnitude that a window holds, "
    + " and ".join(f"{most:.0e} in {kind}" for kind, most in check.LIMITS.items())
)


class ParameterStream:
    """A stream in which all parameters together are one point: what `GradientDenoiser` rests on.

    Attributes:
        parameters: the parameters, frozen ones too.
        members: those that are part of the point.
        blocks: where their history is kept.
        stream: the state of any stream.
        slots: how many observations are stored.
        nonfinite: whether to "skip" what cannot be stored, or to "raise" ValueError.
        skipped: how many observations were refused.
        process_group: the ranks that together hold the parameters; None derives it.
    """

    parameters: list[torch.Tensor]
    members: list[torch.Tensor]
    blocks: list[Block]
    stream: Stream
    slots: int
    nonfinite: str
    process_group: dist.ProcessGroup | None
    skipped = _in_a_row = 0
    _group: Any  # the ranks over which to add, or None

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
        sharding.refuse_flattened(members)
        group = sharding.group_of(members, self.process_group)
        alike: dict[tuple[Any, ...], list[torch.Tensor]] = {}  # by key, below
        for number, p in enumerate(members):
            alone = number if p.numel() >= LARGE else -1
            # Complex ones apart: views of pairs must begin at an even entry.
            key = alone, p.is_complex(), p.device, dtype_of(p), sharding.share(p, group)
            alike.setdefault(key, []).append(p)
        return [Block(p, self.slots, *key[3:]) for key, p in alike.items()]

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
            new = [block.read() for block in self.blocks]
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
        sums = self._measure(new, window.centre, window.leaving, fold[-1] if fold else 0.0)
        # Only the last number, the sum of |g|, may overflow without harm.
        if sums.item(-2) > 0.0 or not np.isfinite(sums[:-1]).all():
            return None
        if sums.item(-1) == 0.0 and (not window.count or idle):
            return changed
        try:
            if fold is not None:
                merged = self._fold(new, *fold)
            if window.next >= window.all_variances.size:
                window.grow(window.next + 1)
            window.admit(sums, variance, limits, merged)
            window.d, stream.limits, self._in_a_row = self._d, limits, 0
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

    def _fold(
        self, new: list[Rows], old: int, into: int, weight: float, shift: float, _: float
    ) -> Float64:
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
        return self._measure(stored, 0.0, into, 0.0)

    def _measure(self, new: list[Rows], centre: float, skip: int, reach: float) -> Float64:
        """Add up over blocks and ranks.

        A step waits for the device, and for other ranks, here alone: twice where it folds.
        """
        used, total = self.stream.window.count, None
        for block, rows in zip(self.blocks, new, strict=True):
            part = block.measure(rows, used, centre, skip, reach)
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
        self._in_a_row += 1
        if self.nonfinite == "raise":
            raise ValueError(
                f"{_REFUSED} (on this or on another rank). The window is as it was. Pass "
                "nonfinite='skip' to leave out such steps."
            )
        if self._in_a_row == _PATIENCE:
            warn_user(
                f"{_PATIENCE} observations in a row were skipped, and nothing is denoised: "
                f"{_REFUSED}."
            )
            return
        members = (t for p in self.parameters for t in (p.detach(), p.grad) if t is not None)
        if all(bool(torch.isfinite(sharding.local(t)).all()) for t in members):
            warn_user(f"an observation was skipped: {_REFUSED}. Rescale the loss, or use float64.")
