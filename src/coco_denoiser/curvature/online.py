"""An upper bound on the curvature from a stream of noisy gradients, and nothing else.

Two observations at a distance ||x_i - x_j||, of noise variance v_i s^2 and v_j s^2 in all, have

    E ||g_i - g_j||^2 = (v_i + v_j) s^2 + kappa_ij^2 ||x_i - x_j||^2,    kappa_ij <= L,

kappa_ij being the curvature between the two. Points far apart tell the curvature, points close
together (or the same) tell the noise, and pairs in between tell both: a straight line through
squares of distances, whose intercept is the noise and whose slope is the curvature, squared.

Data can refute an L but never prove it, so what is used is an upper confidence limit. It is
high as long as little is known, and then nothing is denoised. It comes down where differences
of gradients stand out from the noise; where they never do, it stays so high that bounds
r ||x_i - x_j|| are about what the noise lets one see, which is harmless, and enough. It goes up
only when the newest pairs refute it.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser._jit import kernel
from coco_denoiser.geometry import centre_and_radius
from coco_denoiser.typing import Float64

_MEMORY = 128  # pairs kept, the newest ones: a loss may change its curvature on the way
_FIRST = 6  # pairs without which the noise cannot be told from the curvature
_SLOPE = 2.0  # standard errors from the slope to its limits
_SINGLE = 5.0  # standard deviations by which a single pair must stand out to count on its own
_MARGIN = 1.25  # from the limit, about a mean of kappa^2, to L, a largest value
_DROP = 2.0  # L comes down only by this factor at least, so that it changes rarely
_UNBOUNDED = 1e150  # a radius that only points that coincide feel; infinity times 0 is no number


class StreamEstimate:
    """The current upper bound `L`, infinite as long as nothing is known.

    Args:
        noise: E||noise||^2 of an observation of variance 1, if it is known.
    """

    def __init__(self, noise: float | None = None) -> None:
        self.noise = noise
        self.reset()

    def reset(self) -> None:
        """Forget every pair."""
        self.L = math.inf
        self._pairs = np.zeros((_MEMORY, 2))
        self._count = 0

    def centre_and_radius(self, mu: float) -> tuple[float, float]:
        """Return c and r; with no bound above mu, r is as good as infinite."""
        if mu >= self.L or math.isinf(self.L):
            return mu, _UNBOUNDED
        return centre_and_radius(self.L, mu)

    def observe(self, points: Float64, gradients: Float64, variances: Float64) -> None:
        """Take the squared distances of a new observation to earlier ones, and see to L.

        Args:
            points: (m,), ||x - x_i||^2.
            gradients: (m,), ||g - g_i||^2.
            variances: (m,), sums v + v_i of relative noise variances.
        """
        for pair in zip(points / variances, gradients / variances, strict=True):
            self._pairs[self._count % _MEMORY] = pair
            self._count += 1
        known = self.noise is not None
        if not points.size or self._count < (1 if known else _FIRST):
            return
        pairs = self._pairs[: min(self._count, _MEMORY)]
        # Pairs that share an observation share its noise: they count as one.
        noise = -1.0 if self.noise is None else self.noise
        u, y = np.median(pairs, axis=0).tolist()
        limits = _slope_limits(pairs, u, y, noise, points.size)
        least, most = math.sqrt(limits[0]), math.sqrt(limits[1])
        if 0.0 < most < math.inf and (least > self.L or most * _MARGIN * _DROP <= self.L):
            self.L = most * _MARGIN

    def state(self) -> Float64:
        """Return everything as one vector."""
        return np.concatenate(((self.L, self._count), self._pairs.reshape(-1)))

    @staticmethod
    def checked(saved: Mapping[str, Any]) -> Float64:
        """Return the vector of a saved state, or refuse what `state` cannot have returned."""
        size = 2 + 2 * _MEMORY
        state = check.saved(saved, "estimate", (size,), kind=np.dtype(np.float64), finite=False)
        bound, rest = state[0], state[1:]
        if not (bound > 0.0 and np.isfinite(rest).all() and (rest >= 0.0).all()):
            raise check.damaged("estimate must hold a bound above 0 and squares of at least 0")
        return state

    def load_state(self, state: Float64) -> None:
        """Go back to a saved state."""
        self.L, self._count = float(state[0]), int(state[1])
        self._pairs = np.array(state[2:], dtype=np.float64).reshape(_MEMORY, 2)


def ages(count: int) -> list[int]:
    """Return 1, 2, 4, ... below count: how far back a new observation is compared.

    Few pairs, near and far. All pairs of a window would hardly tell more: they share their noise.
    """
    return [2**i for i in range(max(0, count - 1).bit_length())]


@kernel
def _slope_limits(
    pairs: Float64, median_u: float, median_y: float, noise: float, shared: int
) -> tuple[float, float]:
    """Return confidence limits of the slope b in y = s2 + b u; noise < 0: s2 is unknown.

    Squares of distances scatter in proportion to their mean, so each pair is weighted by the
    inverse square of its mean, which is found by iteration.
    """
    n, known = len(pairs), noise >= 0.0
    top_u, top_y, total_u, total_y = 0.0, max(noise, 0.0), 0.0, 0.0
    for i in range(n):
        top_u, top_y = max(top_u, pairs[i, 0]), max(top_y, pairs[i, 1])
        total_u, total_y = total_u + pairs[i, 0], total_y + pairs[i, 1]
    if top_u == 0.0 or top_y == 0.0:
        return 0.0, np.inf
    a = noise if known else 0.5 * median_y
    b = max(0.0, total_y - n * a) / total_u
    for _ in range(50):
        # In units of the largest, so that nothing overflows.
        S, Su, Suu, Sy, Suy, scatter = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(n):
            u, y = pairs[i, 0] / top_u, pairs[i, 1] / top_y
            mean = max((a + b * pairs[i, 0]) / top_y, 1e-12)
            w = 1.0 / (mean * mean)
            S, Su, Suu = S + w, Su + w * u, Suu + w * u * u
            Sy, Suy = Sy + w * y, Suy + w * u * y
            scatter += w * (y - mean) ** 2
        information = Suu if known else Suu - Su * Su / S
        if information <= 1e-9 * Suu:
            return 0.0, np.inf
        old_a, old_b = a, b
        if known:
            b = max(0.0, (Suy - a / top_y * Su) / Suu)
        else:
            b = (Suy - Su * Sy / S) / information
            a = (Sy - b * Su) / S
            if a < 0.0:
                a, b = 0.0, Suy / Suu
            elif b < 0.0:
                a, b = Sy / S, 0.0
            a *= top_y
        b *= top_y / top_u
        if abs(a - old_a) <= 1e-6 * a and abs(b - old_b) <= 1e-6 * b:
            break
    # A relative scatter of 1 is what noise in two directions has; it counts as four pairs.
    scatter = (4.0 + scatter) / (4.0 + n)
    error = _SLOPE * np.sqrt(scatter * shared / information) * (top_y / top_u)
    least = max(0.0, b - error)
    floor = a * (1.0 + _SINGLE * np.sqrt(scatter))
    # Of the nearer half no single pair counts: a wild observation there would say anything, and
    # too low an L does little harm where the points hardly differ.
    for i in range(n):
        u, y = pairs[i]
        if y > floor and u >= median_u and u > 0.0:
            least = max(least, (y - floor) / u)
    return least, max(least, b + error)
