"""The vectors of a window whose points are parameters: on any devices, on any number of ranks.

Parameters that share a device and a dtype form a block: two tensors, (K, D) each, in which a slot
is one row and each parameter has its columns. An observation is read as one row, too. In main
memory the passes are the compiled ones, over NumPy's view of the tensors; elsewhere they are
PyTorch's own operations.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import _utils

from coco_denoiser.torch import sharding
from coco_denoiser.typing import Float64
from coco_denoiser.vectors import LIMITS, Comparison, Plan, Ring, compared

_flatten: Any = vars(_utils)["_flatten_dense_tensors"]  # it has no type hints
# Entries of a row whose differences are formed at a time, so that temporaries stay small.
_BLOCK = 1 << 20


class DeviceRing(Ring):
    """`Ring` in PyTorch's own operations, for any device. Nothing here waits for the device."""

    @staticmethod
    def read(tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor as the passes take it."""
        return tensor.detach()

    points: Any
    residuals: Any

    def products(self, x: Any, g: Any, limit: float, plan: Plan) -> Any:
        """Add up how an observation relates to the slots in use, in float64; write nothing."""
        used, oldest, successor = plan.used, plan.oldest, plan.successor
        out = torch.from_numpy(plan.zeros()).to(x.device)
        h = torch.sub(g, x, alpha=plan.centre)
        for new in (x, g, h):
            out[-2] += (~(new.abs() <= limit)).sum()  # NaN fails every comparison
        out[-1] = g.abs().sum(dtype=torch.float64)
        for start in range(0, x.numel(), _BLOCK):
            where = slice(start, start + _BLOCK)
            P, R = self.points[:used, where], self.residuals[:used, where]
            if successor >= 0:
                M = _merged(P, R, plan)
                out[-2] += (~(M.abs() <= 2.0 * limit)).sum()
                R = R.clone()
                R[successor] = M
                _add(out[3 * used : 6 * used], P - P[successor], R - M)
            _add(out[: 3 * used], P - x[where], R - h[where])
        if oldest >= 0:
            out[:-2].view(-1, used)[:, oldest] = 0.0
        return out

    def write(
        self,
        x: Any,
        g: Any,
        centre: float,
        slot: int,
        weights: Float64 | None,
        shift: float,
        out: Any,
    ) -> None:
        """Write an observation into its slot; with weights, its denoised gradient to out."""
        points, residuals = self.points, self.residuals
        points[slot] = x
        residuals[slot] = torch.sub(g, x, alpha=centre)
        if weights is None:
            return
        w = torch.from_numpy(weights).to(x.device, residuals.dtype, non_blocking=True)
        for start in range(0, x.numel(), _BLOCK):
            where = slice(start, start + _BLOCK)
            P, R = points[: w.numel(), where], residuals[: w.numel(), where]
            move = R - residuals[slot, where]
            if shift:
                move.sub_(P - points[slot, where], alpha=shift)
            torch.addmv(g[where], move.T, w, out=out[where])

    def filter(self, x: Any, g: Any, centre: float, weight: float, shift: float, out: Any) -> None:
        """Average slot 0 into an observation, which takes its place; write its gradient to out."""
        h = torch.sub(g, x, alpha=centre)
        move = self.residuals[0] - h
        if shift:
            move.sub_(self.points[0] - x, alpha=shift)
        move.mul_(weight)
        self.points[0] = x
        self.residuals[0] = h + move
        torch.add(g, move, out=out)


def _merged(points: torch.Tensor, residuals: torch.Tensor, plan: Plan) -> torch.Tensor:
    """Return the residual of the successor as it is once the oldest is merged into it."""
    old, new = plan.oldest, plan.successor
    move = residuals[old] - residuals[new]
    if plan.shift:
        move.sub_(points[old] - points[new], alpha=plan.shift)
    return residuals[new] + plan.weight * move


def _add(out: torch.Tensor, dx: torch.Tensor, dh: torch.Tensor) -> None:
    """Add ||dx||^2, <dx, dh> and ||dh||^2 of every row to out, (3 used,)."""
    sums = out.view(3, -1)
    sums[0] += torch.linalg.vector_norm(dx, dim=1, dtype=torch.float64).square()
    sums[1] += (dx * dh).sum(dim=1, dtype=torch.float64)
    sums[2] += torch.linalg.vector_norm(dh, dim=1, dtype=torch.float64).square()


class HostRing(Ring):
    """The compiled passes, over NumPy's view of tensors in main memory."""

    def __init__(self, points: torch.Tensor, residuals: torch.Tensor) -> None:
        super().__init__(points.numpy(), residuals.numpy())

    @staticmethod
    def read(tensor: torch.Tensor) -> Any:
        """Return NumPy's view of a tensor; a copy of one that has a negative or conjugate bit."""
        return tensor.numpy(force=True)


def ring_of(device: torch.device) -> Any:
    """Return what does the passes on a device."""
    return HostRing if device.type == "cpu" else DeviceRing


class Block:
    """The part of a window that belongs to parameters of one device and dtype.

    Args:
        members: the parameters of the window; sharded ones enter with this rank's part.
        indices: which of them belong to this block.
        slots: how many observations are stored.
        dtype: of the window, float32 or float64; complex numbers count as pairs.
        share: what this rank's part counts for in a sum over all ranks.

    Attributes:
        ring: what does the passes over points and residuals.
        x: this rank's part of the observed point, as the ring takes it.
        g: that of its gradient.
        out: where denoised gradients are written.
    """

    def __init__(
        self,
        members: Sequence[torch.Tensor],
        indices: Sequence[int],
        slots: int,
        dtype: torch.dtype,
        share: float,
    ) -> None:
        self.indices = list(indices)
        self.parameters = parameters = [members[i] for i in indices]
        self.dtype, self.share = dtype, share
        self._limit = LIMITS[np.dtype(str(dtype).removeprefix("torch."))]
        self._sharded = any(map(sharding.is_sharded, parameters))
        parts = self._parts()
        self.device = parts[0].device
        self._kinds = [(p.shape, p.dtype, p.device) for p in parts]
        self._complex = parts[0].is_complex()
        width = sum(p.numel() for p in parts) * (2 if self._complex else 1)
        self.points = torch.zeros(slots, width, dtype=dtype, device=self.device)
        self.residuals = torch.zeros_like(self.points)
        # Then a denoised gradient is a view of a row.
        kinds = {torch.view_as_real(p).dtype if self._complex else p.dtype for p in parts}
        self._alike = not self._sharded and kinds == {dtype}
        self.__setstate__(self.__dict__)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("ring", "out", "_pairs")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Views, which would not survive pickling as views.
        self.__dict__.update(state)
        self.ring: Any = ring_of(self.device)(self.points, self.residuals)
        theta = torch.empty_like(self.points[0])
        self.out = self.ring.read(theta)
        self._pairs = list(zip(self.parameters, self._split(theta), strict=True))
        self.x: Any = None
        self.g: Any = None

    def _parts(self) -> list[Any]:
        """Return this rank's part of each parameter."""
        if not self._sharded:
            return self.parameters
        return [sharding.local(p.detach()) for p in self.parameters]

    def hold(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Take hold of the parameters as they are now, and of their gradients."""
        parts = self._parts()
        for p, kind in zip(parts, self._kinds, strict=True):
            if (p.shape, p.dtype, p.device) != kind:
                raise ValueError(
                    f"a parameter of shape {tuple(kind[0])}, {kind[1]}, on {kind[2]} has become "
                    f"one of shape {tuple(p.shape)}, {p.dtype}, on {p.device}. Call reset() after "
                    "changing it."
                )
        self.x = self._row(parts)
        if not self._sharded:
            try:
                self.g = self._row(gradients)
            except (TypeError, RuntimeError, AttributeError):  # None or sparse
                pass
            else:
                return
        self.g = self._row([self._gradient(i, g) for i, g in enumerate(gradients)])

    def _row(self, tensors: Sequence[Any]) -> Any:
        """Return tensors side by side, as they lie in a slot, for the passes."""
        if self._complex:
            tensors = [torch.view_as_real(t.resolve_conj()) for t in tensors]
        return self.ring.read(_flatten(tensors).to(self.dtype))

    def _gradient(self, i: int, gradient: torch.Tensor | None) -> torch.Tensor:
        """Return this rank's part of a gradient; None stands for zeros."""
        p = self.parameters[i]
        if gradient is None:
            return torch.zeros_like(sharding.local(p.detach()))
        if gradient.layout is not torch.strided:
            raise TypeError(
                f"gradients must be dense, got one of layout {gradient.layout} for a parameter of "
                f"shape {tuple(p.shape)}. Create embeddings with sparse=False."
            )
        return sharding.local_gradient(p, gradient)

    def products(self, plan: Plan) -> Any:
        """Return this rank's part of what `Ring.products` adds up, a tensor or an array."""
        found = self.ring.products(self.x, self.g, self._limit, plan)
        if self.share != 1.0:
            found[:-2] *= self.share
        return found

    def theta(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return parameters with gradients that are like them, valid until the next step."""
        if self._alike and all(map(torch.Tensor.is_contiguous, self.parameters)):
            return self._pairs
        found = []
        for p, part in self._pairs:
            # Same dtype and same strides as the parameter: fused optimizers rely on both.
            result = torch.empty_like(sharding.local(p.detach()))
            result.copy_(part)
            found.append((p, sharding.like(p, result)))
        return found

    def slots(self) -> Iterator[tuple[torch.Tensor, dict[str, torch.Tensor]]]:
        """Yield each parameter with its history, tensors like the parameter."""
        rows = {
            f"{kind}_{k}": list(self._split(row))
            for kind, ring in (("point", self.points), ("residual", self.residuals))
            for k, row in enumerate(ring)
        }
        for j, p in enumerate(self.parameters):
            yield p, {name: sharding.like(p, parts[j]) for name, parts in rows.items()}

    def _split(self, row: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield views of a row in the shapes of the parameters."""
        start = 0
        for shape, *_ in self._kinds:
            wanted = (*shape, 2) if self._complex else shape
            part = row[start : start + math.prod(wanted)].view(wanted)
            start += part.numel()
            yield torch.view_as_complex(part) if self._complex else part


class TensorVectors:
    """All parameters together as one point, in blocks.

    Args:
        slots: how many observations are stored.
        state_dtype: the dtype of the window; None derives it from the parameters.
        process_group: the ranks that together hold the parameters; None derives it.

    Attributes:
        members: the parameters that are part of the point.
        seen: which of them ever had a gradient.
        blocks: where their history is kept.
    """

    def __init__(
        self,
        slots: int,
        state_dtype: torch.dtype | None,
        process_group: dist.ProcessGroup | None,
    ) -> None:
        self.slots = slots
        self.state_dtype = state_dtype
        self.process_group = process_group
        self.reset()

    def reset(self) -> None:
        """Let go of everything, and free its memory."""
        self.members: list[torch.Tensor] = []
        self.blocks: list[Block] = []
        self.seen: list[bool] = []
        self.d = 0  # coordinates, on all ranks together
        self._group: Any = None
        self._gradients: list[torch.Tensor | None] = []

    def __getstate__(self) -> dict[str, Any]:
        # A process group belongs to its process; elsewhere it is derived anew, or set again.
        return {**self.__dict__, "process_group": None, "_group": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._group = sharding.group_of(self.members, None)

    def prepare(self, members: Sequence[torch.Tensor]) -> None:
        """Make room for the history of these parameters."""
        sharding.refuse_flattened(members)
        self.members = list(members)
        self.d = sum(p.numel() * (2 if p.is_complex() else 1) for p in members)
        self._group = sharding.group_of(self.members, self.process_group)
        self.seen = [False] * len(members)
        alike: dict[Any, list[int]] = {}
        for i, p in enumerate(members):
            # At least float32: differences between close points need the digits.
            wide = p.dtype in (torch.float64, torch.complex128)
            dtype = self.state_dtype or (torch.float64 if wide else torch.float32)
            share = sharding.share(p, self._group)
            sharded = sharding.is_sharded(p)
            alike.setdefault((p.device, p.is_complex(), sharded, dtype, share), []).append(i)
        self.blocks = [
            Block(members, indices, self.slots, *kind[3:]) for kind, indices in alike.items()
        ]

    def hold(self) -> None:
        """Take hold of the parameters as they are now, and of their gradients."""
        self._gradients = gradients = [p.grad for p in self.members]
        alone = len(self.blocks) == 1
        for block in self.blocks:
            block.hold(gradients if alone else [gradients[i] for i in block.indices])

    def release(self) -> None:
        """Let go of the tensors of the last observation."""
        self._gradients = []
        for block in self.blocks:
            block.x = block.g = None

    @property
    def nbytes(self) -> int:
        """Bytes that the window takes on this rank."""
        return sum(2 * b.points.numel() * b.points.element_size() for b in self.blocks)

    def compare(self, plan: Plan) -> Comparison | None:
        """Compare the observation with the slots in use; None if it must not enter.

        This is the only time that a step waits for the device, and for other ranks.
        """
        sums = self._add_up([block.products(plan) for block in self.blocks], plan)
        # Only the last number, a sum of absolute values, may overflow without harm.
        *others, bad, size = sums.tolist()
        if bad > 0.0 or not all(map(math.isfinite, others)):
            return None
        return compared(sums, plan, zero=size == 0.0)[0]

    def _add_up(self, parts: list[torch.Tensor | Float64], plan: Plan) -> Float64:
        """Return the sum over devices and ranks, on the host."""
        if not parts:
            return plan.zeros()
        if len(parts) == 1 and self._group is None and isinstance(parts[0], np.ndarray):
            return parts[0]
        total = torch.as_tensor(parts[0])
        for part in parts[1:]:
            total = total + torch.as_tensor(part).to(total.device)
        if self._group is not None:
            dist.all_reduce(total, group=self._group)
        return total.cpu().numpy()

    def merge_oldest(self, plan: Plan) -> None:
        """Merge the slot that is about to be overwritten into its successor."""
        for block in self.blocks:
            block.ring.merge_oldest(plan)

    def write(self, centre: float, slot: int, weights: Float64 | None, shift: float) -> None:
        """Write the observation into a slot; with weights, make its gradient ready."""
        row = None if weights is None else np.ascontiguousarray(weights)
        for block in self.blocks:
            block.ring.write(block.x, block.g, centre, slot, row, shift, block.out)
        self._note_seen()

    def filter(self, centre: float, weight: float, shift: float) -> None:
        """Average slot 0 into the observation, which takes its place and is ready as theta."""
        for block in self.blocks:
            block.ring.filter(block.x, block.g, centre, weight, shift, block.out)
        self._note_seen()

    def _note_seen(self) -> None:
        if not all(self.seen):
            pairs = zip(self.seen, self._gradients, strict=True)
            self.seen = [was or g is not None for was, g in pairs]

    def short(self, centre: float, count: int, slot: int) -> None:
        """Return None: only the tables are available."""
        del centre, count, slot

    def theta(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return parameters with their denoised gradients, valid until the next step.

        Without those that never had a gradient: they have not moved, and a gradient of zeros in
        place of None would let an optimizer begin to decay them.
        """
        changed = [pair for block in self.blocks for pair in block.theta()]
        if not all(self.seen):
            moved = {id(p) for p, was in zip(self.members, self.seen, strict=True) if was}
            changed = [(p, theta) for p, theta in changed if id(p) in moved]
        return changed
