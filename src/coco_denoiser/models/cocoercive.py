"""The paper's model: gradients of a function whose curvature lies between mu and L.

    argmin over theta of  sum_i ||theta_i - g_i||^2 / v_i
    subject to  ||theta_m - theta_l - c (x_m - x_l)|| <= r ||x_m - x_l||  for all pairs,

with c = (L + mu) / 2 and r = (L - mu) / 2. The newest theta is an average of residuals g - c x
whose weights are not negative.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser import geometry
from coco_denoiser.curvature.online import StreamEstimate, ages
from coco_denoiser.geometry import centre_and_radius
from coco_denoiser.models.base import Averaging, Model, Snapshot
from coco_denoiser.solution import Answer
from coco_denoiser.solvers import answer, closed_form

Bound = float | Callable[[], float]


class CoCoercive(Model):
    """Projection onto the gradients that obey the curvature bounds pair by pair.

    Args:
        L: upper bound on the curvature, a function that returns it, or "auto".
        mu: lower bound, or a function.
        tol: relative duality gap to reach.
        neighbors: how many nearest points each point is constrained with; None for all.
        noise_std: for L="auto", the standard deviation of the noise, if it is known.

    Attributes:
        bounds: L and mu of the last step; None before the first if one of them is a function.
        centre: c of the last step.
        radius: r of the last step.
    """

    def __init__(
        self,
        L: Bound | str,
        mu: Bound,
        *,
        tol: float = 1e-9,
        neighbors: int | None = None,
        noise_std: float | None = None,
    ) -> None:
        self.L, self.mu = L, mu
        self.estimate: StreamEstimate | None = None
        if isinstance(L, str):
            if L != "auto":
                raise ValueError(
                    f"L must be a number, a function that returns one, 'auto' or None, got {L!r}."
                )
            self.estimate = StreamEstimate()
        elif noise_std is not None:
            raise ValueError(
                f"noise_std goes with L='auto' only, got noise_std={noise_std} and L={L}: with L "
                "given, the noise makes no difference. Leave it out."
            )
        self.noise_std = None if noise_std is None else check.positive("noise_std", noise_std)
        self.tol = check.positive("tol", tol)
        self.neighbors = check.count("neighbors", neighbors, optional=True)
        self.bounds: tuple[float, float] | None = None
        self.radius = np.inf
        if not (callable(L) or callable(mu)):
            self.begin(1.0)

    @property
    def settings(self) -> dict[str, object]:
        """What the model was made with, by name."""
        names = ("L", "mu", "tol", "neighbors", "noise_std")
        return {"model": "cocoercive", **{name: getattr(self, name) for name in names}}

    def begin(self, sign: float) -> None:
        """Ask for the curvature bounds."""
        mu = _now(self.mu)
        if self.estimate is not None:
            self.bounds = self.estimate.L, check.number("mu", mu)
            centre, self.radius = self.estimate.centre_and_radius(self.bounds[1])
        else:
            L = _now(self.L)
            if self.bounds != (L, mu):
                self.bounds = check.curvature(L, mu)
            centre, self.radius = centre_and_radius(*self.bounds)
        self.centre, self._sign = sign * centre, sign

    def average(self, window: Snapshot) -> Averaging:
        """Return the weights of the newest observation."""
        if self.estimate is not None:
            self._learn(self.estimate, window)
        if window.variances.size == 2:
            return self._average_two(window)
        newest, found = window.newest, self.solve(window)
        trouble = None
        if not found.status.success:
            trouble = (
                f"{found.method} {found.status.value}: relative gap {found.gap:.1e}, "
                f"tol={self.tol:.1e}."
            )
        return Averaging(
            found.weights[newest],
            self.centre,
            int(np.count_nonzero(found.multipliers)) // 2,
            found.gap,
            found.violation,
            trouble,
            curvature=self.bounds[0] if self.bounds else None,
        )

    def solve(self, window: Snapshot) -> Answer:
        """Solve the whole window, at the bounds of the last step; all is indexed by slots."""
        reduced = geometry.from_tables(
            window.points,
            window.distances(self.centre),
            self.radius,
            window.variances,
            None if window.vectors is None else window.coordinates(self.centre),
        )
        if self.neighbors is not None:
            reduced = geometry.nearest(reduced, self.neighbors)
        return answer(reduced, tol=self.tol)

    def reset(self) -> None:
        """Forget what the stream has told about L."""
        if self.estimate is not None:
            self.estimate.reset()
            self.begin(1.0)

    def state_dict(self) -> dict[str, Any]:
        """Return the estimate of L, if there is one."""
        return {} if self.estimate is None else {"estimate": self.estimate.state()}

    def checked(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the estimate in a saved state."""
        if self.estimate is None:
            if "estimate" in state:
                raise ValueError(
                    f"state was saved with L='auto', this one has L={self.L}. Create it with the "
                    "same L."
                )
            return {}
        if "estimate" not in state:
            raise ValueError(
                "state was saved with L given, this one has L='auto'. Create it with the same L."
            )
        return {"estimate": StreamEstimate.checked(state)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to the estimate of a saved state."""
        if self.estimate is not None:
            self.estimate.load_state(state["estimate"])
            self.begin(1.0)

    def _average_two(self, window: Snapshot) -> Averaging:
        """Use the closed form, with no more than its two numbers."""
        newest = window.newest
        apart = window.distances(self.centre).item(0, 1)
        pull = closed_form.pull(apart, self.radius * window.points.item(0, 1))
        v, u = window.variances.item(newest), window.variances.item(1 - newest)
        share = pull * (v / (v + u))
        weights = np.empty(2)
        weights[newest], weights[1 - newest] = 1.0 - share, share
        return Averaging(
            weights,
            self.centre,
            int(pull > 0.0),
            curvature=self.bounds[0] if self.bounds else None,
        )

    def _learn(self, estimate: StreamEstimate, window: Snapshot) -> None:
        """Let the newest pairs speak; use what they tell at once."""
        if self.noise_std is not None:
            estimate.noise = window.d * self.noise_std**2
        newest = window.newest
        slots = window.order[[-1 - age for age in ages(window.order.size)]]
        gradients = window.distances(0.0)[newest, slots]
        variances = window.variances[newest] + window.variances[slots]
        before = estimate.L
        estimate.observe(window.points[newest, slots] ** 2, gradients**2, variances)
        if before != estimate.L:
            self.begin(self._sign)


def _now(bound: Bound | str) -> Any:
    """Return a bound as it is at this step; a tensor with one entry is a number."""
    value: Any = bound() if callable(bound) else bound
    return value.item() if getattr(value, "ndim", None) == 0 else value
