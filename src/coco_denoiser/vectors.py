"""The vectors of a window: K points and K residuals, and the passes over them.

A backend holds the vectors and one observation (x, g) at a time; the stream never sees them. It
compares first, which reads the window once and writes nothing. Between that and the second pass,
which reads the residuals once and writes the new slot, lies the decision whether the observation
may enter at all. The compiled passes go block by block, while it is in the cache.
"""

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from coco_denoiser._jit import kernel, sweep
from coco_denoiser.typing import Array, Float64
from coco_denoiser.window import Plan

# Entries of a vector worked on at once: long enough for the processor to fetch ahead in 2K
# streams, short enough for a few such blocks to stay in the second-level cache.
BLOCK = 8192
# Entries up to which a step of NumPy's vectors is one compiled function, without blocks.
SHORT = 4096
_FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_NOTHING: Array = np.empty(0, _FLOAT32)
# The largest entry that is stored: with room for differences between two of them in float32, and
# for their squares, scaled, in float64.
LIMITS = {_FLOAT32: float(np.finfo(np.float32).max) / 4.0, FLOAT64: 1e300}
_NO_WEIGHTS = np.empty(0)


class Comparison(NamedTuple):
    """How an observation relates to a window.

    Attributes:
        plan: what the observation does to the window.
        sums: what `Ring.products` has added up.
    """

    plan: Plan
    sums: Float64


class Vectors(Protocol):
    """What a backend has to do."""

    @property
    def d(self) -> int:
        """The number of coordinates of the observation, on all ranks together."""

    def reset(self) -> None:
        """Let go of everything."""

    def compare(self, plan: Plan) -> Float64 | None:
        """Return what `Ring.products` adds up over all; None if the observation must not enter."""

    def rescale(self, plan: Plan, sums: Float64) -> tuple[Float64, float, float]:
        """Return sums whose squares neither overflow nor vanish, and units, as `insert` asks."""

    def merge_oldest(self, plan: Plan) -> None:
        """Merge the slot that is about to be overwritten into its successor."""

    def write(self, centre: float, slot: int, weights: Float64 | None, shift: float) -> None:
        """Write the observation into a slot; with weights, make its denoised gradient ready.

        That is theta = g + sum_i w_i ((h_i - h) - shift (x_i - x)).
        """

    def filter(self, centre: float, weight: float, shift: float) -> None:
        """Average slot 0 into the observation, which takes its place and is ready as theta."""

    def short(self, centre: float, count: int, slot: int) -> tuple[Array, Array] | None:
        """Return points and residuals, (count, d), with the observation in its slot.

        None where the vectors are not all here. Asked for only where d is below count.
        """


def zeros(plan: Plan) -> Float64:
    """Return zeros for what `Ring.products` adds up."""
    return np.zeros((3 if plan.successor < 0 else 6) * plan.used + 2)


class Ring:
    """K points and residuals, (K, d) arrays, and the compiled passes over them."""

    def __init__(self, points: Array, residuals: Array) -> None:
        self.points, self.residuals = points, residuals

    def products(self, x: Array, g: Array, limit: float, plan: Plan) -> Float64:
        """Add up how an observation relates to the slots in use, in float64; write nothing.

        Returns:
            For every slot in use ||dx||^2, <dx, dh> and ||dh||^2 to the observation, then, if
            there is one, to the successor as it will be; the number of entries that must not
            enter; and the sum of |g|.
        """
        out = zeros(plan)
        _sum_products(self.points, self.residuals, x, g, limit, *plan[:6], out)
        return out

    def merge_oldest(self, plan: Plan) -> None:
        """Merge the slot that is about to be overwritten into its successor."""
        points, residuals, old, new = self.points, self.residuals, plan.oldest, plan.successor
        move = residuals[old] - residuals[new]
        if plan.shift:
            move -= plan.shift * (points[old] - points[new])
        residuals[new] += plan.weight * move

    def write(
        self,
        x: Array,
        g: Array,
        centre: float,
        slot: int,
        weights: Float64 | None,
        shift: float,
        out: Array,
    ) -> None:
        """Write an observation into its slot, and its gradient to out, denoised if weighted."""
        w = _NO_WEIGHTS if weights is None else weights
        _store_and_average(self.points, self.residuals, x, g, centre, slot, w, shift, out)

    def filter(
        self, x: Array, g: Array, centre: float, weight: float, shift: float, out: Array
    ) -> None:
        """Average slot 0 into an observation, which takes its place; write its gradient to out."""
        past = self.points[0], self.residuals[0]
        _average_with_past(*past, x, g, centre, weight, shift, out)


class ArrayVectors:
    """Vectors of NumPy; float32 as long as nothing wider has come.

    Attributes:
        ring: the vectors that are held.
        d: the number of coordinates.
        limit: the largest entry that can be stored.
        theta: the gradient that is ready.
    """

    d = 0
    limit = LIMITS[_FLOAT32]

    _x: Array
    _g: Array

    def __init__(self, slots: int | None) -> None:
        self._slots = slots
        self.reset()

    def reset(self) -> None:
        """Let go of everything."""
        self.ring = Ring(np.empty((0, 0), _FLOAT32), np.empty((0, 0), _FLOAT32))
        self.release()

    def release(self) -> None:
        """Let go of the observation."""
        self._x = self._g = self.theta = _NOTHING
        self._wider = self.ring

    def hold(self, x: NDArray[Any], g: NDArray[Any]) -> None:
        """Take hold of an observation of any shape."""
        held = self.ring.points
        dtype: np.dtype[np.floating[Any]] = FLOAT64
        if held.dtype != FLOAT64 and _is_narrow(x.dtype) and _is_narrow(g.dtype):
            dtype = _FLOAT32
        self._x = x.astype(dtype, "C", copy=False).ravel()
        self._g = g.astype(dtype, "C", copy=False).ravel()
        self.d, self.limit = self._x.size, LIMITS[dtype]
        # What is held stays as it is until the observation is admitted.
        if not len(held):
            self._wider = self.empty(self.d, dtype)
        elif held.dtype != dtype:
            self._wider = Ring(held.astype(dtype), self.ring.residuals.astype(dtype))

    def compare(self, plan: Plan) -> Float64 | None:
        """Compare the observation with the slots in use; None if it must not enter."""
        sums = self._wider.products(self._x, self._g, self.limit, plan)
        return sums if sums.item(-2) == 0.0 else None

    def rescale(self, plan: Plan, sums: Float64) -> tuple[Float64, float, float]:
        """Compare in units in which squares neither overflow nor vanish: powers of two."""
        del sums
        used = slice(plan.used)
        points, residuals = (
            np.asarray(v[used], np.float64) for v in (self._wider.points, self._wider.residuals)
        )
        x = self._x.astype(np.float64)
        h = np.asarray(self._g - plan.centre * self._x, np.float64)
        ex, eh = (int(np.frexp(np.abs(r - v).max())[1]) for r, v in ((points, x), (residuals, h)))
        ring = Ring(np.ldexp(points, -ex), np.ldexp(residuals, -eh))
        scaled = plan._replace(centre=0.0, shift=float(np.ldexp(plan.shift, ex - eh)))
        sums = ring.products(np.ldexp(x, -ex), np.ldexp(h, -eh), np.inf, scaled)
        return sums, math.ldexp(1.0, ex), math.ldexp(1.0, eh)

    def merge_oldest(self, plan: Plan) -> None:
        """Merge the slot that is about to be overwritten into its successor."""
        self._wider.merge_oldest(plan)

    def write(self, centre: float, slot: int, weights: Float64 | None, shift: float) -> None:
        """Write the observation into a slot; with weights, make its denoised gradient ready."""
        if self.ring is not self._wider or slot >= len(self.ring.points):
            self._adopt(slot)
        self.theta = theta = np.empty_like(self._g)
        self.ring.write(self._x, self._g, centre, slot, weights, shift, theta)

    def filter(self, centre: float, weight: float, shift: float) -> None:
        """Average slot 0 into the observation, which takes its place and is ready as theta."""
        self._adopt(0)
        self.theta = theta = np.empty_like(self._g)
        self.ring.filter(self._x, self._g, centre, weight, shift, theta)

    def short(self, centre: float, count: int, slot: int) -> tuple[Array, Array] | None:
        """Return points and residuals with the observation in its slot."""
        self._adopt(slot)
        points, residuals = self.ring.points, self.ring.residuals
        points[slot], residuals[slot] = self._x, self._g - centre * self._x
        return points[:count], residuals[:count]

    def load(self, points: Array, residuals: Array) -> None:
        """Take over vectors, (count, d) each."""
        self.reset()
        if len(points):
            self.ring = self._larger(Ring(points, residuals), len(points))
        self.release()

    def empty(self, d: int, dtype: np.dtype[Any] = FLOAT64) -> Ring:
        """Return room for vectors of so many coordinates."""
        nothing = np.empty((0, d), dtype)
        return self._larger(Ring(nothing, nothing), 1)

    def _adopt(self, slot: int) -> None:
        """Go over to vectors that are wide and many enough for the observation."""
        if slot >= len(self._wider.points):
            self._wider = self._larger(self._wider, slot + 1)
        self.ring = self._wider

    def _larger(self, ring: Ring, slots: int) -> Ring:
        count, size = ring.points.shape
        shape = self._slots or max(16, 2 * count, slots), size
        # Zeros: slots that are not in use have a weight of zero, and no NaN in them.
        points, residuals = (np.zeros(shape, ring.points.dtype) for _ in range(2))
        points[:count], residuals[:count] = ring.points, ring.residuals
        return Ring(points, residuals)


def _is_narrow(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" and dtype.itemsize <= 4


@sweep
def _sum_products(
    points: Array,
    residuals: Array,
    x: Array,
    g: Array,
    limit: float,
    c: float,
    count: int,
    oldest: int,
    successor: int,
    weight: float,
    shift: float,
    out: Float64,
) -> None:
    """Fill `out`, which is zero, with what `Ring.products` returns."""
    size, others = points.shape[1], 0
    kind: Any = points.dtype.type
    order = np.empty(count, np.int64)
    for i in range(count):
        if i != oldest:
            order[others] = i
            others += 1
    buffer = np.empty((2, min(size, BLOCK)), points.dtype)
    for a in range(0, size, BLOCK):
        b = min(a + BLOCK, size)
        X, G, H, M = x[a:b], g[a:b], buffer[0, : b - a], buffer[1, : b - a]
        # In the dtype of the vectors, of which a register holds more. A block is counted exactly.
        most, bad, total = kind(limit), kind(0.0), kind(0.0)
        for j in range(H.size):
            H[j] = G[j] - c * X[j]
            # NaN fails every comparison. Counted, since an early exit would prevent vectorisation.
            fine = (abs(X[j]) <= most) & (abs(G[j]) <= most) & (abs(H[j]) <= most)
            bad += kind(0.0) if fine else kind(1.0)
            total += abs(G[j])
        if successor >= 0:
            p, r = points[oldest, a:b], residuals[oldest, a:b]
            X, V = points[successor, a:b], residuals[successor, a:b]
            for j in range(M.size):
                M[j] = V[j] + weight * ((r[j] - V[j]) - shift * (p[j] - X[j]))
                bad += kind(0.0) if abs(M[j]) <= 2.0 * limit else kind(1.0)
        out[out.size - 2] += bad
        out[out.size - 1] += total
        for target in range(1 if successor < 0 else 2):
            U, V = x[a:b], H
            if target == 1:
                U, V = points[successor, a:b], M
            for k in range(0, others, 4):
                # Four slots at a time, or the last one alone; beyond the last is the last again.
                last = others - 1
                i, j = order[k], order[min(k + 1, last)]
                m, n = order[min(k + 2, last)], order[min(k + 3, last)]
                p0, r0 = points[i, a:b], M if i == successor else residuals[i, a:b]
                p1, r1 = points[j, a:b], M if j == successor else residuals[j, a:b]
                p2, r2 = points[m, a:b], M if m == successor else residuals[m, a:b]
                p3, r3 = points[n, a:b], M if n == successor else residuals[n, a:b]
                xx0, xh0, hh0, xx1, xh1, hh1 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                xx2, xh2, hh2, xx3, xh3, hh3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                if k == last:
                    for e in range(U.size):
                        d, f = np.float64(p0[e]) - U[e], np.float64(r0[e]) - V[e]
                        xx0, xh0, hh0 = xx0 + d * d, xh0 + d * f, hh0 + f * f
                else:
                    for e in range(U.size):
                        u, v = np.float64(U[e]), np.float64(V[e])  # widened once for all four
                        d, f = p0[e] - u, r0[e] - v
                        xx0, xh0, hh0 = xx0 + d * d, xh0 + d * f, hh0 + f * f
                        d, f = p1[e] - u, r1[e] - v
                        xx1, xh1, hh1 = xx1 + d * d, xh1 + d * f, hh1 + f * f
                        d, f = p2[e] - u, r2[e] - v
                        xx2, xh2, hh2 = xx2 + d * d, xh2 + d * f, hh2 + f * f
                        d, f = p3[e] - u, r3[e] - v
                        xx3, xh3, hh3 = xx3 + d * d, xh3 + d * f, hh3 + f * f
                sums = (xx0, xh0, hh0, xx1, xh1, hh1, xx2, xh2, hh2, xx3, xh3, hh3)
                for e in range(min(4, others - k)):
                    place = 3 * target * count + order[k + e]
                    out[place] += sums[3 * e]
                    out[place + count] += sums[3 * e + 1]
                    out[place + 2 * count] += sums[3 * e + 2]


@kernel
def _store_and_average(
    points: Array,
    residuals: Array,
    x: Array,
    g: Array,
    c: float,
    slot: int,
    w: Float64,
    shift: float,
    out: Array,
) -> None:
    """Write an observation into its slot, and its gradient to out: the denoised one with weights.

    With weights w, one for each slot, that is g + sum_i w_i ((h_i - h) - shift (x_i - x)): they
    sum to 1, and what all residuals have in common cancels before it is rounded.
    """
    size, last = points.shape[1], w.size - 1
    kind: Any = points.dtype.type
    for a in range(0, size, BLOCK):
        b = min(a + BLOCK, size)
        X, H, theta = points[slot, a:b], residuals[slot, a:b], out[a:b]
        # One loop for each target: with three, the compiler does not vectorise. No assignments of
        # slices either: they take long to compile.
        p, q = x[a:b], g[a:b]
        for j in range(p.size):
            X[j] = p[j]
        for j in range(q.size):
            theta[j] = q[j]
        for j in range(H.size):
            H[j] = theta[j] - c * X[j]
        for k in range(w.size if shift == 0.0 else 2 * w.size):
            if k % w.size % 4 == 0:  # four slots at a time: a quarter of the passes over the sum
                i, rows, own, factor = k, residuals, H, 1.0
                if k >= w.size:
                    i, rows, own, factor = k - w.size, points, X, -shift
                j, m, n = min(i + 1, last), min(i + 2, last), min(i + 3, last)
                p, q, r, s = rows[i, a:b], rows[j, a:b], rows[m, a:b], rows[n, a:b]
                t, u = kind(factor * w[i]), kind(factor * w[j] if j > i else 0.0)
                v, z = kind(factor * w[m] if m > j else 0.0), kind(factor * w[n] if n > m else 0.0)
                for e in range(theta.size):
                    f = own[e]
                    theta[e] += (t * (p[e] - f) + u * (q[e] - f)) + (
                        v * (r[e] - f) + z * (s[e] - f)
                    )


@kernel
def _average_with_past(
    point: Array,
    residual: Array,
    x: Array,
    g: Array,
    c: float,
    weight: float,
    s: float,
    out: Array,
) -> None:
    """Average the past into an observation, which becomes the past; write its gradient to out.

    With h = g - c x and h_0 the past residual, that is g + w ((h_0 - h) - s (x_0 - x)).
    """
    # In the dtype of the vectors: half as many instructions, and fused, so rounded once as well.
    kind: Any = point.dtype.type
    centre, w, shift = kind(c), kind(weight), kind(s)
    for j in range(point.size):
        h = g[j] - centre * x[j]
        move = w * ((residual[j] - h) - shift * (point[j] - x[j]))
        out[j] = g[j] + move
        residual[j] = h + move
        point[j] = x[j]
