"""Ring: the last K points and residuals of the parameters that share a device and a dtype.

Two tensors, (K, D) each, whatever the number of parameters: a slot is one row, and each
parameter has its columns. Parameters that are laid out like a slot are neither moved nor joined.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch

from coco_denoiser.torch import _generic, _narrow, _sharding
from coco_denoiser.torch._kernels import Data, Tensors, layout
from coco_denoiser.typing import Float64
from coco_denoiser.window.history import Plan
from coco_denoiser.window.vectors import LIMITS

# Every parameter's columns begin at a multiple of so many numbers: whole cache lines, and an even
# number, as viewing pairs as complex numbers requires.
_ALIGNMENT = 16
_LIMITS = {
    torch.float32: LIMITS[np.dtype(np.float32)],
    torch.float64: LIMITS[np.dtype(np.float64)],
    torch.bfloat16: torch.finfo(torch.bfloat16).max,
}


_FACTS: tuple[Any, ...] = (
    torch.Tensor.stride,
    torch.Tensor.numel,
    torch.Tensor.get_device,
    attrgetter("dtype"),
)


class Kind(NamedTuple):
    """How the history of a parameter is kept.

    Attributes:
        dtype: the one in which it is compared and averaged, float32 or float64; complex numbers
            count as pairs.
        storage: the dtype in which it is stored.
        device: where.
        share: what this rank's part counts for in a sum over all ranks.
    """

    dtype: torch.dtype
    storage: torch.dtype
    device: torch.device
    share: float


class _Work(NamedTuple):
    """What the passes need at every step, made once. Its views would not survive pickling.

    Attributes:
        passes: the module that does them.
        rings: points and residuals, as it takes them.
        theta: where denoised gradients are written.
        out: the same, as the module takes it.
        parts: parameters with their parts of it.
    """

    passes: Any
    rings: tuple[Any, Any]
    theta: torch.Tensor
    out: Any
    parts: list[tuple[torch.Tensor, torch.Tensor]]


class Ring:
    """The part of a window that belongs to some parameters of one device.

    Args:
        members: the parameters of the window; sharded ones enter with this rank's part.
        indices: which of them belong to this ring.
        slots: their number, K.
        kind: how their history is kept.
    """

    def __init__(
        self, members: Sequence[torch.Tensor], indices: Sequence[int], slots: int, kind: Kind
    ) -> None:
        self.indices = list(indices)
        self.parameters = parameters = [members[i] for i in indices]
        self.dtype, self.device, self._share = kind.dtype, kind.device, kind.share
        parts = [_sharding.local(p.detach()) for p in parameters]
        self.home = home = parts[0].device
        self._shapes = [p.shape for p in parts]
        factors = np.array([2 if p.is_complex() else 1 for p in parts], dtype=np.int64)
        sizes = factors * np.array([p.numel() for p in parts], dtype=np.int64)
        self._dtypes = [p.dtype for p in parts]
        # Of tensors that are read where they lie; those that never are match nothing.
        plain = home == kind.device and all(
            p.is_contiguous() and p.dtype == kind.dtype and not _sharding.is_sharded(p)
            for p in parameters
        )
        self._facts = _facts(parameters) if plain else []
        room = -(-sizes // _ALIGNMENT) * _ALIGNMENT
        width = int(room.sum())
        self._layout = layout((np.cumsum(room) - room).tolist(), sizes.tolist(), width)
        self._where = self._layout if home == kind.device else layout([0], [width], width)
        self._points = torch.zeros(slots, width, dtype=kind.storage, device=kind.device)
        self._residuals = torch.zeros_like(self._points)
        self._narrow: _narrow.Points | None = None
        if kind.storage != kind.dtype:
            row = _generic.hold([_plain(p, kind.dtype) for p in parts], self._layout)
            self._narrow = _narrow.Points(self._points, row.to(kind.device))
        self._work: _Work | None = None
        self._as_they_lie = False
        self._x: Any = None
        self._g: Any = None

    def __getstate__(self) -> dict[str, Any]:
        # The workspace is made anew: views do not survive pickling as views.
        return {**self.__dict__, "_work": None, "_x": None, "_g": None}

    @property
    def nbytes(self) -> int:
        """Bytes that the window takes on this rank."""
        return sum(t.numel() * t.element_size() for t in self._held().values())

    def collect(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Take hold of an observation; copy only what is laid out unlike a slot."""
        x: Tensors = self.parameters
        g: Any = gradients
        self._as_they_lie = self._can_be_read(gradients)
        if not self._as_they_lie:
            x, g = zip(*map(self._convert, range(len(g)), g), strict=True)
        if self.home != self.device:  # in one piece
            x, g = ([_generic.hold(v, self._layout).to(self.device)] for v in (x, g))
        hold = self._at_work().passes.hold
        self._x, self._g = hold(x, self._where), hold(g, self._where)
        if self._narrow is not None:
            self._x = self._x - self._narrow.reference

    def _can_be_read(self, gradients: Sequence[torch.Tensor | None]) -> bool:
        """Say whether the numbers of all tensors lie as in a slot."""
        try:
            return _facts(self.parameters) == self._facts == _facts(gradients)
        except (TypeError, RuntimeError):  # None, or a tensor without strides
            return False

    def _convert(self, i: int, gradient: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return this rank's part of a parameter and of its gradient as the window needs them.

        None stands for zeros.
        """
        p = self.parameters[i]
        if gradient is not None and gradient.layout is not torch.strided:
            raise TypeError(
                f"gradients must be dense, got one of layout {gradient.layout} for a parameter of "
                f"shape {tuple(p.shape)}. Create embeddings with sparse=False."
            )
        x = _sharding.local(p.detach())
        before = self._shapes[i], self._dtypes[i], self.home
        if (x.shape, x.dtype, x.device) != before:
            raise ValueError(
                f"a parameter of shape {tuple(before[0])}, {before[1]}, on {before[2]} has become "
                f"one of shape {tuple(x.shape)}, {x.dtype}, on {x.device}. Call reset() after "
                "changing it."
            )
        x = _plain(x, self.dtype)
        if gradient is None:
            return x, torch.zeros_like(x)
        return x, _plain(_sharding.local_gradient(p, gradient), self.dtype)

    def measure(self, centre: float, plan: Plan) -> Any:
        """Return this rank's part of what `passes.measure` adds up, a tensor or an array."""
        found = self._at_work().passes.measure(
            self._all(), centre=centre, limit=_LIMITS[self._points.dtype], plan=plan
        )
        if self._share != 1.0:
            found[:-2] *= self._share
        return found

    def commit(self, centre: float, slot: int, weights: Float64 | None, shift: float) -> None:
        """Write the observation into a slot; with weights, make its gradient ready for `theta`."""
        work = self._at_work()
        work.passes.commit(
            self._all(), centre=centre, slot=slot, weights=weights, shift=shift, out=work.out
        )

    def advance(self, centre: float, weight: float, shift: float) -> None:
        """Mix the one slot into the observation, which takes its place and is ready as `theta`."""
        work = self._at_work()
        work.passes.advance(self._all(), centre=centre, weight=weight, shift=shift, out=work.out)

    def mix(self, centre: float, plan: Plan) -> None:
        """Mix the residual of the slot that is about to be overwritten into that of its heir."""
        if self._narrow is not None:
            _narrow.mix(self._narrow, self._residuals, centre, plan)
            return
        self._residuals[plan.heir] = _generic.mixed(self._points, self._residuals, plan)

    def _all(self) -> Data:
        return *self._at_work().rings, self._x, self._g

    def _at_work(self) -> _Work:
        """Return what the passes need at every step."""
        if self._work is None:
            passes = _narrow.wide(self.device)[0] if self._narrow is None else _narrow
            points = self._narrow or passes.view(self._points)
            theta = torch.empty_like(self._points[0], dtype=self.dtype)
            pairs = zip(self.parameters, self._split(theta), strict=True)
            rings = points, passes.view(self._residuals)
            self._work = _Work(passes, rings, theta, passes.view(theta), list(pairs))
        return self._work

    def release(self) -> None:
        """Let go of the tensors of the last observation."""
        self._x = self._g = None

    def theta(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return parameters with gradients that are like them, valid until the next step."""
        work = self._at_work()
        if self._as_they_lie:
            return work.parts
        found, parts = [], work.parts
        if self.home != self.device:
            near = _sharding.local(self.parameters[0].detach())
            row = near.new_empty(work.theta.shape, dtype=self.dtype).copy_(work.theta)
            parts = list(zip(self.parameters, self._split(row), strict=True))
        for p, part in parts:
            # Same dtype and same strides as the parameter: fused optimizers rely on both.
            result = torch.empty_like(_sharding.local(p.detach()))
            result.copy_(part)
            found.append((p, _sharding.like(p, result)))
        return found

    def slots(self) -> Iterator[tuple[torch.Tensor, dict[str, torch.Tensor]]]:
        """Yield each parameter with its history, tensors like the parameter."""
        parts = {name: list(self._split(row)) for name, row in self._held().items()}
        for j, p in enumerate(self.parameters):
            yield p, {name: _sharding.like(p, part[j]) for name, part in parts.items()}

    def _held(self) -> dict[str, torch.Tensor]:
        """Return what is kept, row by row."""
        rows: dict[str, torch.Tensor] = {}
        for k, (point, residual) in enumerate(zip(*self.tensors(), strict=True)):
            rows[f"point_{k}"], rows[f"residual_{k}"] = point, residual
        if self._narrow is not None:
            rows["reference"], rows["move"] = self._narrow.reference, self._narrow.move
        return rows

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the points and the residuals, (K, D) each: all that a step has to read."""
        return self._points, self._residuals

    def _columns(self, row: torch.Tensor) -> list[torch.Tensor]:
        """Return each parameter's part of a row."""
        _, offsets, sizes = self._layout[:, :-1].tolist()
        return [row[a : a + size] for a, size in zip(offsets, sizes, strict=True)]

    def _split(self, row: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield views of a row in the shapes of the parameters."""
        for p, shape, part in zip(self.parameters, self._shapes, self._columns(row), strict=True):
            if p.is_complex():
                yield torch.view_as_complex(part.view(*shape, 2))
            else:
                yield part.view(shape)


def _facts(tensors: Sequence[Any]) -> list[list[object]]:
    """Return what tells contiguous tensors from others. Fast, since it runs at every step."""
    return [list(map(fact, tensors)) for fact in _FACTS]


def _plain(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return contiguous real numbers of a dtype: a copy, unless that is what they are."""
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.resolve_neg().to(dtype).contiguous()
