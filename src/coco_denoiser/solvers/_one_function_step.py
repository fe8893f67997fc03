"""What one iteration of the interior-point method is made of; letters as there.

The unknowns of a point are (phi_i, E_i) = base_i + own_i: those of its leader and what it adds
to them. Two points with one leader have one base, so that their difference is exact.
"""

import numpy as np

from coco_denoiser._jit import subroutine
from coco_denoiser._linalg import substitute
from coco_denoiser.typing import Float64, Int64


@subroutine
def residuals(
    base: Float64,
    own: Float64,
    h: Float64,
    n: Float64,
    Y: Float64,
    m: Float64,
    a: Float64,
    z: Float64,
    first: Int64,
    second: Int64,
    D: Float64,
    rho: Float64,
    w: Float64,
    s: Float64,
    gradient: Float64,
    off: Float64,
) -> tuple[float, float, float, float]:
    """Fill the residuals of the first two equations; return objective, gap and their sizes.

    The first is relative to the bounds; the second is a square, as it enters the gap.
    """
    K, q = h.shape
    evaluate(base, own, first, second, D, w, s)
    value, gap, outside, rest, top = 0.0, 0.0, 0.0, 0.0, 1.0
    for i in range(K):
        for c in range(q + 1):
            n_ic, seen = (n[i, c], h[i, c]) if c < q else (m[i], Y[i])
            away = base[i, c] + own[i, c] - seen
            gradient[i, c] = n_ic * away
            value += 0.5 * n_ic * away**2
        top = max(top, abs(base[i, q] + own[i, q]))
    _add_transpose(base, own, first, second, D, a, gradient)
    for e in range(rho.size):
        for side in range(2):
            off[e, side] = w[e] + (1.0 - 2.0 * side) * s[e] - rho[e] ** 2 + z[e, side]
            gap += a[e, side] * z[e, side]
            # Values are rounded in the end; less than that is not chased.
            outside = max(outside, (abs(off[e, side]) - 2e-16 * top) / rho[e] ** 2)
    for i in range(K):
        for c in range(q):
            rest += gradient[i, c] ** 2 / n[i, c]
    return value, gap, outside, rest


@subroutine
def evaluate(
    base: Float64, own: Float64, first: Int64, second: Int64, D: Float64, w: Float64, s: Float64
) -> None:
    """Fill w and s of every pair."""
    q = base.shape[1] - 1
    for e in range(first.size):
        i, j = first[e], second[e]
        w[e], s[e] = 0.0, (base[j, q] - base[i, q]) + (own[j, q] - own[i, q])
        for c in range(q):
            w[e] += ((base[i, c] - base[j, c]) + (own[i, c] - own[j, c])) ** 2
            s[e] += 2.0 * (base[i, c] + base[j, c] + own[i, c] + own[j, c]) * D[e, c]


@subroutine
def _add_transpose(
    base: Float64, own: Float64, first: Int64, second: Int64, D: Float64, v: Float64, out: Float64
) -> None:
    """Add J'v, where J is the derivative of the inequalities in (phi, E)."""
    q = base.shape[1] - 1
    for e in range(first.size):
        i, j = first[e], second[e]
        both, flow = 2.0 * (v[e, 0] + v[e, 1]), v[e, 0] - v[e, 1]
        for c in range(q):
            pull = both * ((base[i, c] - base[j, c]) + (own[i, c] - own[j, c]))
            push = 2.0 * flow * D[e, c]
            out[i, c] += pull + push
            out[j, c] += push - pull
        out[i, q] -= flow
        out[j, q] += flow


@subroutine
def matrix(
    base: Float64,
    own: Float64,
    leader: Int64,
    n: Float64,
    m: Float64,
    a: Float64,
    z: Float64,
    first: Int64,
    second: Int64,
    D: Float64,
    fixed: Int64,
    H: Float64,
    ridge: float,
) -> None:
    """Fill the upper triangle of the Lagrangian's second derivative plus J' diag(a / z) J.

    In the unknowns: of a leader its own (phi, E), of any other what it adds to its leader's.
    """
    K, q = base.shape[0], base.shape[1] - 1
    b = q + 1
    H[:] = 0.0
    for i in range(K):
        k = leader[i]
        for c in range(b):
            n_ic = n[i, c] if c < q else m[i]
            H[k * b + c, k * b + c] += n_ic
            if k < i:
                H[k * b + c, i * b + c] += n_ic
                H[i * b + c, i * b + c] += n_ic
    for k in fixed:  # only differences of values count
        H[k * b + q, k * b + q] += 1.0
    p, t = np.empty(q), np.empty(q)
    # The unknowns that a pair depends on, and how its ||.||^2, its sum and its E do.
    node, part = np.empty(4, np.int64), np.empty((4, 3))
    for e in range(first.size):
        i, j = first[e], second[e]
        one, two = a[e, 0] / z[e, 0], a[e, 1] / z[e, 1]
        even, odd, pull = one + two, one - two, 2.0 * (a[e, 0] + a[e, 1])
        for c in range(q):
            p[c] = 2.0 * ((base[i, c] - base[j, c]) + (own[i, c] - own[j, c]))
            t[c] = 2.0 * D[e, c]
        count = _nodes(leader, i, j, node, part)
        for x in range(count):
            for y in range(count):
                if node[x] <= node[y]:
                    _add_block(H, node[x] * b, node[y] * b, part[x], part[y], p, t, even, odd, pull)
    for k in range(K * b):
        H[k, k] *= 1.0 + ridge


@subroutine
def _nodes(leader: Int64, i: int, j: int, node: Int64, part: Float64) -> int:
    """List the unknowns of a pair in `node`, each once, and what it is to them in `part`."""
    node[0] = leader[i]
    part[0, 0], part[0, 1], part[0, 2] = 1.0, 1.0, -1.0
    count = 1
    if leader[j] == leader[i]:
        part[0, 0], part[0, 1], part[0, 2] = 0.0, 2.0, 0.0
    else:
        node[1] = leader[j]
        part[1, 0], part[1, 1], part[1, 2] = -1.0, 1.0, 1.0
        count = 2
    for point, sign in ((i, 1.0), (j, -1.0)):
        if leader[point] != point:
            node[count] = point
            part[count, 0], part[count, 1], part[count, 2] = sign, 1.0, -sign
            count += 1
    return count


@subroutine
def _add_block(
    H: Float64,
    row: int,
    column: int,
    left: Float64,
    right: Float64,
    p: Float64,
    t: Float64,
    even: float,
    odd: float,
    pull: float,
) -> None:
    q = p.size
    for c in range(q + 1):
        of_p, of_t = (left[0] * p[c], left[1] * t[c]) if c < q else (0.0, left[2])
        with_p = right[0] * (even * of_p + odd * of_t)
        with_t = even * of_t + odd * of_p
        out = H[row + c][column:]
        for k in range(q):
            out[k] += with_p * p[k] + with_t * right[1] * t[k]
        out[q] += with_t * right[2]
        if c < q:
            out[c] += pull * left[0] * right[0]


@subroutine
def direction(
    H: Float64,
    base: Float64,
    own: Float64,
    leader: Int64,
    first: Int64,
    second: Int64,
    D: Float64,
    gradient: Float64,
    a: Float64,
    z: Float64,
    off: Float64,
    target: Float64,
    da: Float64,
    dz: Float64,
    w: Float64,
    s: Float64,
) -> tuple[Float64, Float64]:
    """Return the direction in (phi, E), and fill those of multipliers and slacks."""
    K, q = base.shape[0], base.shape[1] - 1
    for e in range(a.shape[0]):
        for side in range(2):
            da[e, side] = (a[e, side] * off[e, side] - target[e, side]) / z[e, side]
    du = -gradient
    pushed = np.zeros((K, q + 1))
    _add_transpose(base, own, first, second, D, da, pushed)
    du -= pushed
    for i in range(K):
        if leader[i] != i:
            du[leader[i]] += du[i]
    substitute(H, du.reshape(du.size))
    dbase, down = np.empty((K, q + 1)), np.zeros((K, q + 1))
    for i in range(K):
        dbase[i] = du[leader[i]]
        if leader[i] != i:
            down[i] = du[i]
    evaluate(dbase, down, first, second, D, w, s)
    for e in range(first.size):
        i, j = first[e], second[e]
        inner = 0.0
        for c in range(q):
            v = (base[i, c] - base[j, c]) + (own[i, c] - own[j, c])
            inner += 2.0 * v * ((dbase[i, c] - dbase[j, c]) + (down[i, c] - down[j, c]))
        for side in range(2):
            change = inner + (1.0 - 2.0 * side) * s[e]
            dz[e, side] = -off[e, side] - change
            da[e, side] += a[e, side] / z[e, side] * change
    return dbase, down


@subroutine
def longest(a: Float64, z: Float64, da: Float64, dz: Float64, share: float) -> float:
    """Return the longest step, at most 1, that uses up no more than a share of what is left."""
    step = 1.0
    for e in range(a.shape[0]):
        for side in range(2):
            if da[e, side] < 0.0:
                step = min(step, -share * a[e, side] / da[e, side])
            if dz[e, side] < 0.0:
                step = min(step, -share * z[e, side] / dz[e, side])
    return step
