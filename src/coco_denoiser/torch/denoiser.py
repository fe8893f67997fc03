"""GradientDenoiser: the sliding window of a set of parameters, for hand-written loops.

The window, as everywhere, is two K by K tables. What is done here is to fill one row of them,
from tensors of any dtype, on any device, on any number of ranks, and to take one weighted sum.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist

from coco_denoiser import _validation as check
from coco_denoiser import folding
from coco_denoiser.curvature.online import StreamEstimate, ages
from coco_denoiser.geometry import centre_and_radius
from coco_denoiser.solution import Answer, ConvergenceWarning
from coco_denoiser.tables import Tables
from coco_denoiser.torch import _sharding
from coco_denoiser.torch._diagnostics import Averaging, Diagnostics, averaging
from coco_denoiser.torch._ring import Ring, state_dtype_of
from coco_denoiser.typing import Float64

Bound = float | Callable[[], float]
NonFinite = Literal["skip", "raise"]


class GradientDenoiser:
    r"""Denoise the gradients of parameters, each together with the K - 1 observed before it.

    All parameters together are one point $x$, all their gradients one vector $g$. At every call,
    over the last K observations,

    $$\begin{align*}
    \operatorname{argmin}_\theta\quad & \sum_i \|\theta_i - g_i\|^2 \\
    \text{subject to}\quad & \|\theta_m - \theta_l - c\,(x_m - x_l)\| \le r\,\|x_m - x_l\|
    \quad\text{for all pairs } m, l
    \end{align*}$$

    with $c = (L + \mu) / 2$ and $r = (L - \mu) / 2$; the newest $\theta$ takes the place of the
    gradients. For loops that are written by hand:

        denoiser = GradientDenoiser(model.parameters(), L=4.0, window=8)
        ...
        loss.backward()
        scaler.unscale_(optimizer)
        denoiser.denoise()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)

    Parameters that are frozen (no `requires_grad`, no gradient) are no part of the point and
    take no memory. A gradient that is None counts as zero.

    Args:
        parameters: the parameters.
        L: upper bound on the curvature of the loss, a function that returns it, or "auto" to
            estimate it from the gradients; `diagnostics().L` then tells the estimate.
        mu: lower bound, or a function: 0 convex, > 0 strongly convex, -L merely smooth.
        window: how many observations are kept, K; memory for 2 K copies of the parameters.
        state_dtype: float32 or float64; None keeps float64 for parameters in double precision
            and float32 for all others.
        nonfinite: what to do with an observation that has an infinity or NaN: "skip" it, or
            "raise" FloatingPointError. It never enters the window.
        process_group: the ranks that together hold the parameters; None derives it from
            sharded parameters, and adds nothing up if there are none.
        tol: relative duality gap to reach at every step.
        forget: what becomes of the observation that leaves the window: "drop" it, or "fold" it
            into its successor, whose noise variance falls accordingly. With window=2, folding
            is a recursive filter, and its memory two copies of the parameters.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        L: Bound | Literal["auto"],
        mu: Bound = 0.0,
        window: int = 8,
        state_dtype: torch.dtype | None = None,
        nonfinite: NonFinite = "skip",
        process_group: dist.ProcessGroup | None = None,
        tol: float = 1e-9,
        forget: Literal["drop", "fold"] = "drop",
    ) -> None:
        self.parameters = list(parameters)
        self.L, self.mu = L, mu
        self.estimate: StreamEstimate | None = None
        if isinstance(L, str):
            check.one_of("L", L, ("auto",))
            self.estimate = StreamEstimate()
        elif not (callable(L) or callable(mu)):
            check.curvature(L, mu)
        size = check.count("window", window, optional=False)
        self.window = size if size is not None else 1
        if state_dtype not in (None, torch.float32, torch.float64):
            raise ValueError(
                f"state_dtype must be torch.float32, torch.float64 or None, got {state_dtype}: "
                "differences between close points need the digits."
            )
        self.state_dtype = state_dtype
        self.nonfinite = check.one_of("nonfinite", nonfinite, ("skip", "raise"))
        self.process_group = process_group
        self.tol = check.positive("tol", tol)
        self.skipped = 0
        self.forget = check.forgetting(forget, self.window)
        if self.estimate is not None:
            # What was folded is no gradient that was observed, and would tell a lower L.
            check.one_of("forget", forget, ("drop",))
        # With two, the fold is the answer itself: done at once, it leaves one slot in use.
        self._recursive = self.forget == "fold" and self.window == 2
        self.slots = 1 if self._recursive else self.window
        self.tables = Tables(self.slots)
        self.reset()

    def reset(self) -> None:
        """Forget every observation, and free its memory."""
        self.tables.reset()
        self.members: list[torch.Tensor] = []
        self.rings: list[Ring] = []
        self._group: Any = None
        self.seen = np.zeros(0, dtype=np.bool_)
        self._bounds: tuple[float, float] | None = None
        self.centre, self._radius = 0.0, 0.0
        self._answer: Answer | None = None
        self._filtered: Averaging | None = None
        if self.estimate is not None:
            self.estimate.reset()

    def __len__(self) -> int:
        """Return the number of observations that are held; folded ones count as one."""
        return self.tables.count

    @property
    def _slot(self) -> int:
        """The slot of the newest observation."""
        return (self.tables.next - 1) % self.slots

    def __getstate__(self) -> dict[str, Any]:
        # A process group belongs to its process; elsewhere it is derived anew, or set again.
        return {**self.__dict__, "process_group": None, "_group": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._group = _sharding.group_of(self.members, None)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    @torch.no_grad()
    def denoise(self) -> bool:
        """Put the denoised gradients in place of the gradients.

        Returns:
            False if they are not finite: gradients and window are as they were.
        """
        changed = self.observe(self.parameters)
        for parameter, theta in changed or ():
            if parameter.grad is None:
                parameter.grad = theta.clone()
            else:
                parameter.grad.copy_(theta)
        return changed is not None

    def observe(
        self,
        parameters: Sequence[torch.Tensor],
        *,
        maximize: bool = False,
        standing: Callable[[], bool] = lambda: False,
    ) -> list[tuple[torch.Tensor, torch.Tensor]] | None:
        """Take one observation, in stages, under no_grad; change no gradient.

        Args:
            parameters: the parameters, with their gradients.
            maximize: whether the gradients are those of a function to be maximised: then it
                is its negative that has curvature between mu and L.
            standing: says whether the optimizer is made to stand still. Zero gradients are
                then no observation: checkpointing makes such a step to create the state.

        Returns:
            The parameters whose gradient changes, each with the denoised one, valid until the
            next call; None if the observation was refused.
        """
        gradients = self._collect(parameters)
        self._follow_curvature(maximize=maximize)
        squares, finite, zero = self._measure()
        if not finite:
            self._refuse()
            return None
        if zero and (not len(self) or standing()):
            self._release()
            return []
        try:
            if self._recursive and len(self):
                weights = self._filter(squares)
            else:
                self._record(squares)
                weights = self._commit()
            if self.estimate is not None and self._learn_curvature(self.estimate):
                self._follow_curvature(maximize=maximize)
                weights = self._commit()
        except BaseException:
            # Tables and vectors may no longer belong together.
            self.reset()
            raise
        self._release()
        if not self.seen.all():
            self.seen |= [g is not None for g in gradients]
        return [] if weights is None else self._changed()

    def diagnostics(self) -> Diagnostics:
        """Return what the last step did, and what the window costs."""
        last = self._filtered or averaging(self.tables, self._answer, self._slot)
        L, mu = self._bounds or (np.nan, np.nan)
        return Diagnostics(
            observations=len(self),
            window=self.window,
            L=L,
            mu=mu,
            skipped=self.skipped,
            nbytes=sum(ring.nbytes for ring in self.rings),
            **last._asdict(),
        )

    def _collect(self, parameters: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Take hold of the points and gradients; start anew if the parameters are others."""
        members = [p for p in parameters if p.requires_grad or p.grad is not None]
        if list(map(id, members)) != list(map(id, self.members)):
            self.reset()
            self.prepare(members)
        gradients = [p.grad for p in members]
        for ring in self.rings:
            ring.collect([gradients[i] for i in ring.indices])
        return gradients

    def prepare(self, members: Sequence[torch.Tensor]) -> None:
        """Make room for the history of these parameters, one ring a device and dtype."""
        self.members = list(members)
        self._group = _sharding.group_of(self.members, self.process_group)
        self.seen = np.zeros(len(members), dtype=np.bool_)
        alike: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for i, p in enumerate(members):
            alike.setdefault((p.device, state_dtype_of(p, self.state_dtype)), []).append(i)
        self.rings = [
            Ring(members, indices, self.slots, dtype, self._group)
            for (_, dtype), indices in alike.items()
        ]

    def _follow_curvature(self, *, maximize: bool) -> None:
        """Ask for the curvature bounds; bring what is stored to their centre."""
        L, mu = _now(self.L) if self.estimate is None else self.estimate.L, _now(self.mu)
        if self.estimate is not None:
            self._bounds = self.estimate.L, check.number("mu", mu)
            centre, self._radius = self.estimate.centre_and_radius(self._bounds[1])
        else:
            if self._bounds != (L, mu):
                self._bounds = check.curvature(L, mu)
            centre, self._radius = centre_and_radius(*self._bounds)
        centre = -centre if maximize else centre
        if centre != self.centre and len(self):
            squares = self._add_up(
                [r.recentre(self.centre - centre, len(self)) for r in self.rings]
            )
            used = slice(len(self))
            self.tables.residuals[used, used] = np.sqrt(squares)[used, used]
        self.centre = centre

    def _measure(self) -> tuple[Float64, bool, bool]:
        """Return the sums of squares (2, K), whether all is finite, and whether all is zero.

        This is the only time that a step waits for the device, and for other ranks.
        """
        count, slot = self.tables.count, self.tables.next
        # What is folded is measured too: the distances after the fold follow from those before.
        skip = -1 if self.forget == "fold" else slot
        sums = self._add_up([ring.measure(self.centre, count, skip) for ring in self.rings])
        # Only the last number, a sum of absolute values, may overflow without harm.
        finite = math.isfinite(float(sums[:-1].sum()))
        return sums[:-2].reshape(2, self.slots), finite, sums[-1] == 0.0

    def _add_up(self, parts: list[torch.Tensor]) -> Float64:
        """Return the sum over devices and ranks, on the host."""
        if not parts:
            return np.zeros(2 * self.slots + 2)
        total = parts[0]
        for part in parts[1:]:
            total = total + part.to(total.device)
        return _sharding.add_up(total, self._group).cpu().numpy()

    def _refuse(self) -> None:
        self.skipped += 1
        self._release()
        if self.nonfinite == "raise":
            raise FloatingPointError(
                "the gradients or parameters hold an infinity or NaN (on this or on another "
                "rank). The window is as it was. Pass nonfinite='skip' to leave out such steps."
            )

    def _record(self, squares: Float64) -> None:
        """Take the observation into the tables; fold what leaves them, if that is wanted."""
        points, residuals = np.sqrt(squares)
        tables = self.tables
        fold = tables.leaving(self._radius) if self.forget == "fold" else None
        if fold is not None and fold.weight > 0.0:
            old, heir = tables.next, tables.heir
            residuals[heir] = folding.mixed(
                residuals[heir], residuals[old], tables.residuals[old, heir], fold.weight
            )
            for ring in self.rings:
                ring.mix(heir, old, fold.weight)
        tables.insert(points, residuals, 1.0, fold)

    def _filter(self, squares: Float64) -> Float64 | None:
        """Fold the past into the observation, which becomes the past; return both weights."""
        way, apart = np.sqrt(squares[:, 0]).tolist()
        w, variance = folding.fold(apart, self._radius * way, self.tables.variances.item(0), 1.0)
        self.tables.variances[0] = variance
        weights = np.array([w, 1.0 - w])
        self._filtered = Averaging(weights, int(w > 0.0), 0.0, w * apart)
        for ring in self.rings:
            if w > 0.0:
                ring.advance(self.centre, w)
            else:
                ring.commit(self.centre, 0, None)
        return weights if w > 0.0 else None

    def _solve(self) -> Float64 | None:
        """Return the weights of the newest observation, one a slot; None if it stays as it is."""
        self._answer = None
        if len(self) == 1:
            return None
        self._answer = found = self.tables.answer(self._radius, self.tol)
        if not found.status.success:
            warnings.warn(
                f"{found.method} {found.status.value}: relative gap {found.gap:.1e}, "
                f"tol={self.tol:.1e}.",
                ConvergenceWarning,
                stacklevel=4,
            )
        row = found.weights[self._slot]
        return None if row[self._slot] == 1.0 else np.ascontiguousarray(row)

    def _commit(self) -> Float64 | None:
        """Solve, write the newest observation into its slot, and combine."""
        weights = self._solve()
        for ring in self.rings:
            ring.commit(self.centre, self._slot, weights)
        return weights

    def _learn_curvature(self, estimate: StreamEstimate) -> bool:
        """Let the newest pairs speak; say whether that changes L."""
        slots = self.tables.order()[[-1 - age for age in ages(len(self))]]
        if not slots.size:
            return False
        squares = self._add_up(
            [r.gradient_squares(self.centre, self._slot, slots.tolist()) for r in self.rings]
        )
        before = estimate.L
        points = self.tables.points[self._slot, slots]
        estimate.observe(points**2, squares, np.full(slots.size, 2.0))
        return before != estimate.L

    def _release(self) -> None:
        for ring in self.rings:
            ring.release()

    def _changed(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return parameters with their denoised gradients.

        Without those that never had a gradient: they have not moved, and a gradient of zeros in
        place of None would let an optimizer begin to decay them.
        """
        return [
            (self.members[i], theta)
            for ring in self.rings
            for i, theta in zip(ring.indices, ring.theta(), strict=True)
            if self.seen[i]
        ]


def _now(bound: Bound | str) -> object:
    """Return a bound as it is at this step."""
    value: object = bound() if callable(bound) else bound
    return value.item() if isinstance(value, torch.Tensor) else value
