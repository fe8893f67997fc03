"""Methods that remember the last gradient of every term of a finite sum.

Minimise f = (1/n) sum_i f_i. A plain oracle call throws away what it learnt about term i as
soon as the step is taken; these methods keep it in a table alpha_1, ..., alpha_n, and let the
table's mean correct the next estimate. Each step evaluates the gradient of one term.

With a denoiser, it is the corrected direction that is denoised, not the gradient of the term.
COCO takes its input for a noisy gradient of f, and the corrected direction is that estimate
here. Denoising the term's gradient before the correction takes away the very noise that
g - alpha_i is there to cancel, so that the correction puts it back with the opposite sign. The
paper does so nevertheless (its Figure 1(b)); STRSAGA can do either.
"""

from typing import Literal

import numpy as np

from coco_denoiser.optimizers.base import DenoiserLike, Optimizer
from coco_denoiser.optimizers.schedules import StepSize
from coco_denoiser.problems.base import FiniteSum, Oracle, draw_index, is_finite_sum
from coco_denoiser.typing import Array


class FiniteSumOptimizer(Optimizer):
    """A method that asks a finite sum for the gradients of single terms.

    Its memory belongs to one problem until `reset`. A subclass gives `begin` and `direction`.
    """

    def forget(self) -> None:
        """Let go of the problem and of everything remembered about it."""
        self._terms: FiniteSum | None = None

    def estimate(self, problem: Oracle, x: Array, rng: np.random.Generator) -> Array:
        """Return the method's estimate of the gradient of f at x."""
        terms = self._terms
        if terms is not problem:
            terms = self._bind(problem, x)
            self.begin(terms, rng)
        return self.direction(terms, x, rng)

    def begin(self, terms: FiniteSum, rng: np.random.Generator) -> None:
        """Set up the memory for a problem."""
        raise NotImplementedError

    def direction(self, terms: FiniteSum, x: Array, rng: np.random.Generator) -> Array:
        """Return the estimate and update the memory."""
        raise NotImplementedError

    def _bind(self, problem: Oracle, x: Array) -> FiniteSum:
        name = type(self).__name__
        if self._terms is not None:
            raise ValueError(f"{name} remembers gradients of another problem; call reset() first.")
        if not is_finite_sum(problem):
            raise TypeError(
                f"{name} needs a finite sum with size and example_gradient(x, i), "
                f"got {type(problem).__name__}; use SGD or Adam for a plain oracle."
            )
        if x.shape != (problem.dimension,):
            raise ValueError(
                f"x must be one point ({problem.dimension},), got shape {x.shape}: "
                f"{name} remembers the gradients of one run."
            )
        self._terms = problem
        return problem


class _Table(FiniteSumOptimizer):
    """The table of stored gradients over the first `_count` terms of `_order`, and its mean."""

    def begin(self, terms: FiniteSum, rng: np.random.Generator) -> None:  # noqa: ARG002
        """Start with no gradient stored."""
        self._alpha = np.zeros((terms.size, terms.dimension))
        self._mean = np.zeros(terms.dimension)
        self._order = np.arange(terms.size)
        self._count = 0

    def _admit(self) -> int:
        """Add the next term to the sample set with a stored gradient of 0; return its index."""
        index = int(self._order[self._count])
        self._count += 1
        self._mean *= (self._count - 1) / self._count
        return index

    def _store(self, index: int, g: Array) -> Array:
        """Replace term `index`'s stored gradient; return g minus the old one."""
        change: Array = g - self._alpha[index]
        self._alpha[index] = g
        self._mean += change / self._count
        return change


class SAG(_Table):
    r"""Follow the mean of the stored gradients (Schmidt, Le Roux and Bach, 2017).

    $$\alpha_i \leftarrow \nabla f_i(x), \qquad x \leftarrow x - \gamma\, \bar\alpha$$

    The mean is over the terms seen so far, as its authors recommend, so that the first steps
    are not held back by terms that have no gradient yet. The direction is biased.
    """

    def begin(self, terms: FiniteSum, rng: np.random.Generator) -> None:
        """Start with an empty sample set."""
        super().begin(terms, rng)
        self._place = np.arange(terms.size)

    def direction(self, terms: FiniteSum, x: Array, rng: np.random.Generator) -> Array:
        """Refresh one term's gradient and return the mean."""
        index = draw_index(terms.size, rng)
        if self._place[index] >= self._count:
            self._enter(index)
        self.evaluations += 1
        self._store(index, terms.example_gradient(x, index))
        return self._mean.copy()

    def _enter(self, index: int) -> None:
        """Swap a term seen for the first time to the border of the sample set, and admit it."""
        first, place = self._order[self._count], self._place[index]
        self._order[self._count], self._order[place] = index, first
        self._place[index], self._place[first] = self._count, place
        self._admit()


class SAGA(_Table):
    r"""Correct one term's gradient by its stored one (Defazio, Bach and Lacoste-Julien, 2014).

    $$g = \nabla f_i(x), \qquad x \leftarrow x - \gamma\, (g - \alpha_i + \bar\alpha), \qquad
    \alpha_i \leftarrow g$$

    The direction is unbiased whatever is stored, so the table starts at 0 and costs nothing.
    """

    def begin(self, terms: FiniteSum, rng: np.random.Generator) -> None:
        """Start with all terms in the sample set, stored gradients 0."""
        super().begin(terms, rng)
        self._count = terms.size

    def direction(self, terms: FiniteSum, x: Array, rng: np.random.Generator) -> Array:
        r"""Return $g - \alpha_i + \bar\alpha$ for a term drawn uniformly."""
        return self._correct(terms, x, draw_index(terms.size, rng))

    def _correct(self, terms: FiniteSum, x: Array, index: int) -> Array:
        self.evaluations += 1
        mean = self._mean.copy()
        mean += self._store(index, self._ask(terms, x, index))
        return mean

    def _ask(self, terms: FiniteSum, x: Array, index: int) -> Array:
        """Return the gradient of a term that is stored and corrected."""
        return terms.example_gradient(x, index)


class STRSAGA(SAGA):
    r"""SAGA on a sample set that grows as data stream in (Jothimurugesan et al., 2018).

    On odd steps, while the stream lasts, the next term $p$ arrives: it joins the sample set $T$
    with $\alpha_p = 0$. On even steps, $p$ is drawn uniformly from $T$. Then SAGA's step is taken
    on $T$:

    $$g = \nabla f_p(x), \qquad x \leftarrow x - \gamma\, (g - \alpha_p + \bar\alpha_T), \qquad
    \alpha_p \leftarrow g$$

    Terms arrive in an order drawn once, each of them once. Their method takes two steps per
    arrival, one on the arrival and one on a sample already held (rho = 2 lambda in their
    notation); so does this one, at one gradient evaluation per step, as for SGD. When all n terms
    have arrived, every step is a step of SAGA. The mean is over all that is held, the arrival
    included; theirs, on an arrival, divides by what was held before it.

    Args:
        step_size: gamma, a number or a schedule.
        denoiser: called once per step.
        denoise: "direction" denoises g - alpha_p + mean, which is an estimate of the gradient of
            f; "gradient" denoises g and stores the denoised one, as the COCO paper does.
        steps_per_arrival: 2, or 1 for the schedule of the COCO paper's code: a term arrives at
            every step, and the step is on a sample drawn from all that is held.
    """

    def __init__(
        self,
        step_size: StepSize,
        *,
        denoiser: DenoiserLike | None = None,
        denoise: Literal["direction", "gradient"] = "direction",
        steps_per_arrival: Literal[1, 2] = 2,
    ) -> None:
        if denoise not in ("direction", "gradient"):
            raise ValueError(f"denoise must be 'direction' or 'gradient', got {denoise!r}.")
        if steps_per_arrival not in (1, 2):
            raise ValueError(f"steps_per_arrival must be 1 or 2, got {steps_per_arrival!r}.")
        super().__init__(step_size, denoiser=denoiser)
        self._denoise, self._steps_per_arrival = denoise, steps_per_arrival

    def denoised(self, x: Array, g: Array) -> Array:
        """Return the direction denoised, unless the gradient in it was."""
        return g if self._denoise == "gradient" else super().denoised(x, g)

    def begin(self, terms: FiniteSum, rng: np.random.Generator) -> None:
        """Draw the order of arrival; nothing has arrived yet."""
        super().begin(terms, rng)
        self._order = rng.permutation(terms.size)
        self._count = 0
        self._arrival = True

    def direction(self, terms: FiniteSum, x: Array, rng: np.random.Generator) -> Array:
        """Return g - alpha_p + mean(alpha over T), p alternating between new and old samples."""
        arrived = self._admit() if self._arrival and self._count < terms.size else None
        if arrived is None or self._steps_per_arrival == 1:
            index = int(self._order[draw_index(self._count, rng)])
        else:
            index = arrived
        self._arrival = self._steps_per_arrival == 1 or not self._arrival
        return self._correct(terms, x, index)

    def _ask(self, terms: FiniteSum, x: Array, index: int) -> Array:
        g = super()._ask(terms, x, index)
        return super().denoised(x, g) if self._denoise == "gradient" else g
