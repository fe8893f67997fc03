"""The vectors of a window whose points are parameters, on one device.

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
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import torch

from coco_denoiser._validation import LIMITS
from coco_denoiser.torch import sharding
from coco_denoiser.torch.passes import DEVICE, PASSES, Average, Passes, Row
from coco_denoiser.typing import State

# It has no type hints. Unlike flattening it allocates nothing, converts, and resolves conjugate
# and negative bits.
_copy: Any = vars(torch)["_foreach_copy_"]
_grad = attrgetter("grad")
# A point, its gradient, and room for the denoised one, as the passes take them; then that room in
# the shapes of the parameters. On every rank its part.
Rows: TypeAlias = tuple[Row, Row, Row, list[torch.Tensor]]
LARGE = 1 << 18  # entries from which on copying takes longer than passes of its own


class Block:
    """The part of a window that belongs to parameters of one device and dtype.

    Args:
        members: the parameters; sharded ones enter with this rank's part, complex ones as pairs.
        slots: how many observations are stored.
        dtype: of the window, float32 or float64.
        share: what this rank's part counts for in a sum over all ranks.

    Attributes:
        limit: the largest magnitude that is held.
        seen: which of the parameters ever had a gradient.
        passes: those of the device.
        held: points and residuals, as the passes take them.
    """

    passes: Passes
    held: list[Row]
    _buffers: dict[int, tuple[Row, list[torch.Tensor]]]

    def __init__(
        self, members: Sequence[torch.Tensor], slots: int, dtype: torch.dtype, share: float
    ) -> None:
        self.members, self.share, self.seen = list(members), share, [False] * len(members)
        self.limit = LIMITS[np.dtype(str(dtype).removeprefix("torch."))]
        self._sharded = any(map(sharding.is_sharded, members))
        here = [sharding.local(p.detach()) for p in members]
        # Of the gradients: those of their parameters, unless these say otherwise.
        own = [getattr(p, "grad_dtype", None) if p.is_leaf else None for p in members]
        self._dtypes = [kind or p.dtype for kind, p in zip(own, members, strict=True)]
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
        views = ("passes", "held", "_buffers")  # which would not survive pickling as views
        return {k: v for k, v in self.__dict__.items() if k not in views}

    def __setstate__(self, state: State) -> None:
        self.__dict__.update(state)
        self.passes = PASSES.get(self.points.device.type, DEVICE)
        self.held, self._buffers = list(map(self.passes.read, (self.points, self.residuals))), {}

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
        made = self.passes.read(row), self._split(row)
        if row.device.type == "cpu":  # elsewhere an allocator makes another one cheaply
            self._buffers[number] = made
        return made

    def _row(self, number: int, tensors: Sequence[torch.Tensor | None]) -> Row:
        """Return tensors as a row to read: a single one as it is, if the passes can take it."""
        first, kind = tensors[0], (self._shapes[0], self.points.dtype)
        if len(tensors) == 1 and first is not None and (first.shape, first.dtype) == kind:
            with suppress(TypeError, RuntimeError):  # sparse, or not plain in memory
                # A zero tensor has no memory, which NumPy is not told before PyTorch 2.10.
                if first.is_contiguous() and not first._is_zerotensor():  # noqa: SLF001 - no other
                    return self.passes.read(first.detach().view(-1))
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

    def read(self) -> Rows:
        """Read the parameters and their gradients; None is zeros. Valid until the next time."""
        here, gradients = self.members, list(map(_grad, self.members))
        if self._sharded:
            gradients = [p.grad if p.grad is None else sharding.local(p.grad, p) for p in here]
            here = list(map(sharding.local, here))
        out = self._buffers.get(2) or self._buffer(2)
        return self._row(0, here), self._row(1, gradients), *out

    def measure(self, new: Rows, used: int, centre: float, skip: int) -> torch.Tensor:
        """Return this rank's part of what `kernels.measure` adds up.

        Args:
            new: the observation.
            used: how many slots are in use.
            centre: c of the residuals.
            skip: a slot that is left out.
        """
        sums = torch.zeros(3 * used + 2, dtype=torch.float64, device=self.points.device)
        self.passes.measure(*self.held, *new[:2], centre, self.limit, skip, self.passes.read(sums))
        if self.share != 1.0:
            sums[:-2] *= self.share
        return sums

    def commit(self, new: Rows, centre: float, slot: int, average: Average | None) -> None:
        """Write an observation, and make its gradient ready."""
        self.passes.commit(*self.held, *new[:2], centre, slot, average, new[2])
        if not all(self.seen):
            pairs = zip(self.seen, self.members, strict=True)
            self.seen = [was or p.grad is not None for was, p in pairs]

    def theta(self, new: Rows) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return parameters with gradients that are like them, valid until the next step.

        Without those that never had a gradient: they have not moved, and a gradient of zeros in
        place of None would let an optimizer begin to decay them.
        """
        found = compress(zip(self.members, new[3], self._dtypes, strict=True), self.seen)
        if self._alike and all(map(torch.Tensor.is_contiguous, self.members)):
            # Aliases: a wrapped step that sets grad.data would cut off the views themselves.
            return [(p, part.data) for p, part, _ in found]
        # Same dtype and same strides as the parameter: fused optimizers rely on both.
        return [
            (p, sharding.placed(p, torch.empty_like(sharding.local(p), dtype=dtype).copy_(part)))
            for p, part, dtype in found
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
