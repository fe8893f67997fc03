"""The vectors of a window whose points are parameters: on any devices, on any number of ranks.

Parameters that share a device and a dtype form a block: two tensors, (K, D) each, in which a slot
is one row and each parameter has its columns. Three rows more take an observation and its denoised
gradient: kept in main memory, where the passes are the compiled ones, over NumPy's view of the
tensors; for the time of a step elsewhere, where they are PyTorch's own operations. A large
parameter is a block by itself: the passes then read it and its gradient where they are.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import compress
from operator import attrgetter, is_
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from coco_denoiser._validation import LIMITS
from coco_denoiser.torch import sharding
from coco_denoiser.torch.passes import Average, Passes, Row, passes_of
from coco_denoiser.typing import Float64, State

# It has no type hints. Unlike flattening it allocates nothing, converts, and resolves conjugate
# and negative bits.
_copy: Any = vars(torch)["_foreach_copy_"]
_kind = attrgetter("shape", "dtype", "device")
_LARGE = 1 << 18  # entries from which on copying takes longer than passes of its own


def dtype_of(parameter: torch.Tensor) -> torch.dtype:
    """Return the dtype of a history: differences between close points need float32's digits."""
    wide = parameter.dtype in (torch.float64, torch.complex128)
    return torch.float64 if wide else torch.float32


def _gradient_dtype(parameter: torch.Tensor) -> torch.dtype:
    """Return the dtype of a gradient: that of its parameter, unless that says otherwise."""
    own = getattr(parameter, "grad_dtype", None) if parameter.is_leaf else None
    return own or parameter.dtype


class Block:
    """The part of a window that belongs to parameters of one device and dtype.

    Args:
        members: the parameters; sharded ones enter with this rank's part, complex ones as pairs.
        slots: how many observations are stored.
        dtype: of the window, float32 or float64.
        share: what this rank's part counts for in a sum over all ranks.

    Attributes:
        seen: which of the parameters ever had a gradient.
        passes: those of the device.
        rows: during a step, this rank's part of the observed point, of its gradient, and of the
            denoised one, as the passes take them.
    """

    passes: Passes
    rows: list[Row]
    _held: list[Row]  # points and residuals, as the passes take them
    _buffers: dict[int, tuple[Row, list[torch.Tensor]]]

    def __init__(
        self, members: Sequence[torch.Tensor], slots: int, dtype: torch.dtype, share: float
    ) -> None:
        self.members, self.share, self.seen = list(members), share, [False] * len(members)
        self._limit = LIMITS[np.dtype(str(dtype).removeprefix("torch."))]
        self._sharded = any(map(sharding.is_sharded, members))
        here = [sharding.local(p.detach()) for p in members]
        self._dtypes = list(map(_gradient_dtype, members))
        kinds = {p.dtype for p in here}.union(self._dtypes)
        self._alike = not self._sharded and kinds <= {dtype, dtype.to_complex()}
        self._complex = here[0].is_complex()
        self._shapes = [(*p.shape, 2) if self._complex else tuple(p.shape) for p in here]
        size = slots, sum(map(math.prod, self._shapes))
        with torch.inference_mode(mode=False):  # what is kept is written to outside of it too
            self.points, self.residuals = (
                torch.zeros(size, dtype=dtype, device=here[0].device) for _ in range(2)
            )
        self.__setstate__(self.__dict__)

    def __getstate__(self) -> State:
        views = ("passes", "rows", "_held", "_buffers")  # which would not survive pickling as views
        return {k: v for k, v in self.__dict__.items() if k not in views}

    def __setstate__(self, state: State) -> None:
        self.__dict__.update(state)
        self.passes = passes_of(self.points.device)
        self._held = [self.passes.read(v).reshape(v.shape) for v in (self.points, self.residuals)]
        self.rows, self._buffers = [], {}

    def _split(self, row: torch.Tensor) -> list[torch.Tensor]:
        """Return views of a row in the shapes of the parameters."""
        parts = torch.split(row, list(map(math.prod, self._shapes)))
        views = [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]
        if not self._complex:
            return views
        # Rows without entries may have odd offsets, which PyTorch refuses.
        return [torch.view_as_complex(v if v.numel() else v.clone()) for v in views]

    def _buffer(self, number: int) -> tuple[Row, list[torch.Tensor]]:
        """Make a row to write to, and its views in the shapes of the parameters."""
        with torch.inference_mode(mode=False):
            row = self.points.new_empty(self.points.shape[1])
        self._buffers[number] = self.passes.read(row), self._split(row)
        return self._buffers[number]

    def _row(self, number: int, tensors: Sequence[torch.Tensor | None]) -> Row:
        """Return tensors as a row to read: a single one as it is, if the passes can take it."""
        first, kind = tensors[0], (self._shapes[0], self.points.dtype)
        if len(tensors) == 1 and first is not None and (first.shape, first.dtype) == kind:
            # A zero tensor has no memory, which NumPy is not told before PyTorch 2.10.
            with suppress(TypeError, RuntimeError):  # sparse, or not plain in memory
                return self.passes.read(first.clone() if first._is_zerotensor() else first)  # noqa: SLF001 - no other
        row, views = self._buffers.get(number) or self._buffer(number)
        try:
            _copy(views, tensors)
        except (TypeError, RuntimeError):  # one of them is None or sparse
            for part, tensor in zip(views, tensors, strict=True):
                if tensor is None:
                    part.zero_()
                elif tensor.layout is torch.strided:
                    part.copy_(tensor)
                else:
                    raise TypeError(
                        f"gradients must be dense, got one of layout {tensor.layout} and shape "
                        f"{tuple(tensor.shape)}. Create embeddings with sparse=False."
                    ) from None
        return row

    def hold(self) -> None:
        """Read the parameters and their gradients; None is zeros."""
        here, gradients = self.members, [p.grad for p in self.members]
        if self._sharded:
            gradients = [p.grad if p.grad is None else sharding.local(p.grad, p) for p in here]
            here = list(map(sharding.local, here))
        theta = self._buffers.get(2) or self._buffer(2)
        self.rows = [self._row(0, here), self._row(1, gradients), theta[0]]

    def release(self) -> None:
        """Drop the observation, and its memory where an allocator makes that cheap."""
        self.rows = []
        if self.points.device.type != "cpu":
            self._buffers = {}

    def measure(
        self, used: int, centre: float, skip: int, reach: float = 0.0, *, at: int | None = None
    ) -> torch.Tensor:
        """Return this rank's part of what `kernels.measure` adds up.

        Args:
            used: how many slots are in use.
            centre: c of the residuals.
            skip: a slot that is left out.
            reach: the largest number that enters besides the observation.
            at: the slot of an observation that is already stored, to measure it instead.
        """
        x, g, limit = *self.rows[:2], self._limit if reach <= self._limit else -1.0
        if at is not None:
            (x, g), limit = (held[at] for held in self._held), math.inf
        sums = torch.zeros(3 * used + 2, dtype=torch.float64, device=self.points.device)
        self.passes.measure(*self._held, x, g, centre, limit, skip, self.passes.read(sums))
        if self.share != 1.0:
            sums[:-2] *= self.share
        return sums

    def commit(
        self, centre: float, slot: int, average: Average | None, *, at: int | None = None
    ) -> None:
        """Write the observation, or one that is stored, and make its gradient ready."""
        x, g = self.rows[:2] if at is None else (held[at] for held in self._held)
        self.passes.commit(*self._held, x, g, centre, slot, average, self.rows[2])
        if not all(self.seen):
            pairs = zip(self.seen, self.members, strict=True)
            self.seen = [was or p.grad is not None for was, p in pairs]

    def theta(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return parameters with gradients that are like them, valid until the next step.

        Without those that never had a gradient: they have not moved, and a gradient of zeros in
        place of None would let an optimizer begin to decay them.
        """
        found = zip(self.members, self._buffers[2][1], self._dtypes, strict=True)
        if self._alike and all(map(torch.Tensor.is_contiguous, self.members)):
            # Aliases: a wrapped step that sets grad.data would cut off the views themselves.
            return [(p, part.data) for p, part, _ in compress(found, self.seen)]
        # Same dtype and same strides as the parameter: fused optimizers rely on both.
        return [
            (p, sharding.placed(p, torch.empty_like(sharding.local(p), dtype=dtype).copy_(part)))
            for p, part, dtype in compress(found, self.seen)
        ]

    def slots(self) -> Iterator[tuple[torch.Tensor, dict[str, torch.Tensor]]]:
        """Yield each parameter with its history, tensors like the parameter."""
        rows = {
            f"{kind}_{k}": self._split(row)
            for kind, ring in (("point", self.points), ("residual", self.residuals))
            for k, row in enumerate(ring)
        }
        for j, p in enumerate(self.members):
            yield p, {name: sharding.placed(p, parts[j]) for name, parts in rows.items()}


class TensorVectors:
    """All parameters together as one point, in blocks.

    Args:
        slots: how many observations are stored.
        process_group: the ranks that together hold the parameters; None derives it.

    Attributes:
        members: the parameters that are part of the point.
        blocks: where their history is kept.
        d: the number of coordinates, on all ranks together.
    """

    _group: Any  # the ranks over which to add, or None

    def __init__(self, slots: int, process_group: dist.ProcessGroup | None) -> None:
        self.slots, self.process_group = slots, process_group
        self.prepare([])

    def __getstate__(self) -> State:
        # A process group belongs to its process; elsewhere it is derived anew, or set again.
        return {**self.__dict__, "process_group": None, "_group": None}

    def __setstate__(self, state: State) -> None:
        self.__dict__.update(state)
        self._group = sharding.group_of(self.members, None)

    def prepare(self, members: Sequence[torch.Tensor]) -> None:
        """Make room for the history of these parameters."""
        self.members, self.blocks = list[torch.Tensor](), list[Block]()  # frees their memory
        sharding.refuse_flattened(members)
        self._group = sharding.group_of(members, self.process_group)
        alike: dict[tuple[Any, ...], list[torch.Tensor]] = {}  # by key, below
        for number, p in enumerate(members):
            alone = number if p.numel() >= _LARGE else -1
            # Complex ones apart: views of pairs must begin at an even entry.
            key = alone, p.is_complex(), p.device, dtype_of(p), sharding.share(p, self._group)
            alike.setdefault(key, []).append(p)
        self.blocks = [Block(p, self.slots, *key[3:]) for key, p in alike.items()]
        self.members, self._kinds = list(members), list(map(_kind, members))
        self.d = sum(p.numel() * (2 if p.is_complex() else 1) for p in members)

    def covers(self, members: Sequence[torch.Tensor]) -> bool:
        """Return whether the point consists of these parameters, as they are now."""
        alike = list(map(_kind, members)) == self._kinds
        return alike and all(map(is_, members, self.members))

    def measure(self, used: int, *how: Any, at: int | None = None) -> Float64:
        """Add up over blocks and ranks.

        A step waits for the device, and for other ranks, here alone: twice where it folds.
        """
        parts = [block.measure(used, *how, at=at) for block in self.blocks]
        total = parts[0] if parts else torch.zeros(3 * used + 2, dtype=torch.float64)
        for part in parts[1:]:
            total = total.to(part.device) + part
        if self._group is not None:
            dist.all_reduce(total, group=self._group)
        sums: Float64 = total.cpu().numpy()
        return sums
