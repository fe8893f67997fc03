"""Methods that correct each gradient by the gradient at a snapshot of the iterate.

Minimise f = (1/n) sum_i f_i. At a snapshot s the gradient of f is computed, from all terms or
from a batch; from then on one term's gradient at x is corrected by the same term's at s:

    x -= gamma (grad f_i(x) - grad f_i(s) + G(s))

Little memory is needed, but a step costs two gradient evaluations, and a snapshot many. With a
denoiser, the corrected direction is denoised; `finite_sum` says why.
"""

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser.optimizers.base import DenoiserLike
from coco_denoiser.optimizers.finite_sum import FiniteSumOptimizer
from coco_denoiser.optimizers.schedules import StepSize
from coco_denoiser.problems.base import FiniteSum, draw_index
from coco_denoiser.typing import Array


class _Snapshot(FiniteSumOptimizer):
    """A snapshot, its gradient G, and the number of steps left until the next one."""

    def begin(self, terms: FiniteSum, rng: np.random.Generator) -> None:  # noqa: ARG002
        """Ask for a snapshot at the first step."""
        self._left = 0
        self._snapshot: Array = np.zeros(terms.dimension)
        self._full: Array = np.zeros(terms.dimension)

    def direction(self, terms: FiniteSum, x: Array, rng: np.random.Generator) -> Array:
        """Return the corrected gradient; at the snapshot itself that is G, for no more cost."""
        self._left -= 1
        if self._left < 0:
            self._left = self.interval(terms, rng) - 1
            self._snapshot, self._full = x.copy(), self.snapshot_gradient(terms, x, rng)
            return self._full.copy()
        index = draw_index(terms.size, rng)
        self.evaluations += 2
        g = terms.example_gradient(x, index) - terms.example_gradient(self._snapshot, index)
        g += self._full
        return g

    def interval(self, terms: FiniteSum, rng: np.random.Generator) -> int:
        """Return the number of steps to take from this snapshot."""
        raise NotImplementedError

    def snapshot_gradient(self, terms: FiniteSum, x: Array, rng: np.random.Generator) -> Array:
        """Return G at the new snapshot x."""
        raise NotImplementedError


class SVRG(_Snapshot):
    """Correct by the full gradient at a snapshot (Johnson and Zhang, 2013).

    Args:
        step_size: gamma, a number or a schedule.
        period: the number of steps between snapshots; 2n when left out, as its authors advise
            for convex problems.
        denoiser: called on the corrected direction.
    """

    def __init__(
        self,
        step_size: StepSize,
        *,
        period: int | None = None,
        denoiser: DenoiserLike | None = None,
    ) -> None:
        self._period = check.count("period", period, optional=True)
        super().__init__(step_size, denoiser=denoiser)

    def interval(self, terms: FiniteSum, rng: np.random.Generator) -> int:  # noqa: ARG002
        """Return the fixed period."""
        return 2 * terms.size if self._period is None else self._period

    def snapshot_gradient(
        self,
        terms: FiniteSum,
        x: Array,
        rng: np.random.Generator,  # noqa: ARG002
    ) -> Array:
        """Return the gradient of f, at the cost of n evaluations."""
        self.evaluations += terms.size
        return terms.gradient(x)


class SSVRG(_Snapshot):
    r"""Streaming SVRG: correct by a growing batch's gradient (Frostig et al., 2015).

    Stage $s = 0, 1, \dots$ averages batch · growth$^s$ gradients at its snapshot, and then takes a
    number of steps drawn uniformly from 1, ..., inner. Samples are drawn afresh every time. A
    batch that reaches n is the full gradient, since nothing beyond it can be learnt.

    Args:
        step_size: gamma, a number or a schedule.
        batch: the first batch.
        growth: the factor from one stage's batch to the next, at least 1.
        inner: the largest number of steps in a stage.
        denoiser: called on the corrected direction.
    """

    def __init__(
        self,
        step_size: StepSize,
        *,
        batch: int = 16,
        growth: float = 2.0,
        inner: int = 64,
        denoiser: DenoiserLike | None = None,
    ) -> None:
        self._batch = check.count("batch", batch, optional=False) or 1
        self._inner = check.count("inner", inner, optional=False) or 1
        if not (np.isfinite(growth) and growth >= 1):
            raise ValueError(f"growth must be finite and at least 1, got {growth}.")
        self._growth = float(growth)
        super().__init__(step_size, denoiser=denoiser)

    def begin(self, terms: FiniteSum, rng: np.random.Generator) -> None:
        """Start at the first stage."""
        super().begin(terms, rng)
        self._next_batch = float(self._batch)

    def interval(self, terms: FiniteSum, rng: np.random.Generator) -> int:  # noqa: ARG002
        """Draw the number of steps of this stage, the one at the snapshot included."""
        return 1 + draw_index(self._inner, rng)

    def snapshot_gradient(self, terms: FiniteSum, x: Array, rng: np.random.Generator) -> Array:
        """Return the mean gradient of this stage's batch."""
        size = min(int(self._next_batch), terms.size)
        self._next_batch = min(self._next_batch * self._growth, float(terms.size))
        self.evaluations += size
        if size == terms.size:
            return terms.gradient(x)
        batch = rng.integers(terms.size, size=size)
        mean: Array = terms.example_gradient(x, batch).mean(axis=0)
        return mean
