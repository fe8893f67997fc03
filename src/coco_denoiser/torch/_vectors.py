"""The vectors of a window whose points are parameters: on any devices, on any number of ranks."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from coco_denoiser.torch import _sharding
from coco_denoiser.torch._ring import Kind, Ring
from coco_denoiser.typing import Float64
from coco_denoiser.window.history import Plan
from coco_denoiser.window.passes import room
from coco_denoiser.window.vectors import Measured, measured


class Keep(NamedTuple):
    """How to keep a window: what was asked for, or None."""

    state_dtype: torch.dtype | None
    storage: torch.dtype | None
    state_device: torch.device | None


class TensorVectors:
    """All parameters together as one point; one ring for each device, dtype and share.

    Args:
        slots: how many observations are stored.
        keep: how to keep the window; None derives it from the parameters.
        process_group: the ranks that together hold the parameters; None derives it.

    Attributes:
        members: the parameters that are part of the point.
        seen: which of them ever had a gradient.
        rings: where their history is kept.
    """

    def __init__(self, slots: int, keep: Keep, process_group: dist.ProcessGroup | None) -> None:
        self.slots = slots
        self.keep = keep
        self.process_group = process_group
        self.reset()

    def reset(self) -> None:
        """Let go of everything, and free its memory."""
        self.members: list[torch.Tensor] = []
        self.rings: list[Ring] = []
        self.seen: list[bool] = []
        self.d = 0  # coordinates, on all ranks together
        self._group: Any = None
        self._gradients: list[torch.Tensor | None] = []

    def __getstate__(self) -> dict[str, Any]:
        # A process group belongs to its process; elsewhere it is derived anew, or set again.
        return {**self.__dict__, "process_group": None, "_group": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._group = _sharding.group_of(self.members, None)

    def prepare(self, members: Sequence[torch.Tensor]) -> None:
        """Make room for the history of these parameters."""
        self.members = list(members)
        self.d = sum(p.numel() * (2 if p.is_complex() else 1) for p in members)
        self._group = _sharding.group_of(self.members, self.process_group)
        self.seen = [False] * len(members)
        alike: dict[tuple[torch.device, Kind], list[int]] = {}
        for i, p in enumerate(members):
            alike.setdefault((p.device, self._kind(p)), []).append(i)
        self.rings = [
            Ring(members, indices, self.slots, kind) for (_, kind), indices in alike.items()
        ]

    def _kind(self, p: torch.Tensor) -> Kind:
        """Return how the history of a parameter is kept: sums are at least in float32."""
        wide = p.dtype in (torch.float64, torch.complex128)
        dtype = self.keep.state_dtype or (torch.float64 if wide else torch.float32)
        # There is no complex number made of two bfloat16.
        storage = dtype if p.is_complex() else self.keep.storage or dtype
        device = p.device if self.keep.state_device is None else self.keep.state_device
        return Kind(dtype, storage, device, _sharding.share(p, self._group))

    def hold(self) -> None:
        """Take hold of the parameters as they are now, and of their gradients."""
        self._gradients = gradients = [p.grad for p in self.members]
        for ring in self.rings:
            alone = len(self.rings) == 1
            ring.collect(gradients if alone else [gradients[i] for i in ring.indices])

    def release(self) -> None:
        """Let go of the tensors of the last observation."""
        self._gradients = []
        for ring in self.rings:
            ring.release()

    def names(self, p: torch.Tensor) -> list[str]:
        """Return what a parameter's history consists of."""
        names = [f"{kind}_{k}" for kind in ("point", "residual") for k in range(self.slots)]
        return (
            names if self.keep.storage is None or p.is_complex() else [*names, "reference", "move"]
        )

    @property
    def nbytes(self) -> int:
        """Bytes that the window takes on this rank."""
        return sum(ring.nbytes for ring in self.rings)

    def measure(self, centre: float, plan: Plan) -> Measured:
        """Compare the observation with the slots in use; write nothing.

        This is the only time that a step waits for the device, and for other ranks.
        """
        sums = self._add_up([ring.measure(centre, plan) for ring in self.rings], plan)
        # Only the last number, a sum of absolute values, may overflow without harm.
        *others, bad, size = sums.tolist()
        finite = bad == 0.0 and all(map(math.isfinite, others))
        return measured(sums, plan, finite=finite, zero=size == 0.0)

    def _add_up(self, parts: list[torch.Tensor | Float64], plan: Plan) -> Float64:
        """Return the sum over devices and ranks, on the host."""
        if not parts:
            return room(plan.used, plan.heir)
        if len(parts) == 1 and self._group is None and isinstance(parts[0], np.ndarray):
            return parts[0]
        total = torch.as_tensor(parts[0])
        for part in parts[1:]:
            total = total + torch.as_tensor(part).to(total.device)
        if self._group is not None:  # its ranks exchange what is on the parameters' device
            total = _sharding.add_up(total.to(self.rings[0].home), self._group)
        return total.cpu().numpy()

    def mix(self, centre: float, plan: Plan) -> None:
        """Mix the slot that is about to be overwritten into its heir."""
        for ring in self.rings:
            ring.mix(centre, plan)

    def commit(self, centre: float, slot: int, weights: Float64 | None, shift: float) -> None:
        """Write the observation into a slot; with weights, make its gradient ready."""
        row = None if weights is None else np.ascontiguousarray(weights)
        for ring in self.rings:
            ring.commit(centre, slot, row, shift)
        self._look()

    def advance(self, centre: float, weight: float, shift: float) -> None:
        """Mix slot 0 into the observation, which takes its place and is ready as theta."""
        for ring in self.rings:
            ring.advance(centre, weight, shift)
        self._look()

    def _look(self) -> None:
        if not all(self.seen):
            pairs = zip(self.seen, self._gradients, strict=True)
            self.seen = [was or g is not None for was, g in pairs]

    def coordinates(self, centre: float, count: int, slot: int) -> None:
        """Return None: only the tables are available."""
        del centre, count, slot

    def theta(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return parameters with their denoised gradients, valid until the next step.

        Without those that never had a gradient: they have not moved, and a gradient of zeros in
        place of None would let an optimizer begin to decay them.
        """
        changed = [pair for ring in self.rings for pair in ring.theta()]
        if not all(self.seen):
            moved = {id(p) for p, was in zip(self.members, self.seen, strict=True) if was}
            changed = [(p, theta) for p, theta in changed if id(p) in moved]
        return changed
