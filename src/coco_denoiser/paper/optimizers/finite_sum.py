"""STRSAGA, which remembers the last gradient of every term of a finite sum that has arrived.

Minimise f = (1/n) sum_i f_i. A plain oracle call throws away what it learnt about term i as
soon as the step is taken; SAGA (Defazio, Bach and Lacoste-Julien, 2014) keeps it in a table
alpha_1, ..., alpha_n, and lets the table's mean correct the next estimate. Each step evaluates
the gradient of one term.

With a denoiser, the term's gradient is denoised and stored, as in the paper's Figure 1(b).
"""

import numpy as np

from coco_denoiser.paper.optimizers.base import Optimizer
from coco_denoiser.paper.problems.base import (
    FiniteSum,
    Indices,
    Oracle,
    draw_index,
    is_finite_sum,
)
from coco_denoiser.typing import Array


class STRSAGA(Optimizer):
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
    included; theirs, on an arrival, divides by what was held before it. The table belongs to one
    problem, and to one point (d,) or to a batch (runs, d) with an order for each run, until
    `reset`.

    Args:
        step_size: gamma, a number or a schedule.
        denoiser: called as denoiser(x, g) once per step; the denoised gradient is stored.
    """

    def forget(self) -> None:
        """Forget the problem."""
        self._terms: FiniteSum | None = None
        self._count = 0  # of the sample set, over which the mean is taken
        self._arrival = True

    def denoised(self, x: Array, g: Array) -> Array:  # noqa: ARG002 - of an interface
        """Return the direction as it is: the gradient in it was denoised."""
        return g

    def advance(self, problem: Oracle, x: Array, rng: np.random.Generator) -> Array:
        r"""Step along $g - \alpha_p + \bar\alpha_T$ and store g."""
        terms = self._terms
        if terms is not problem:
            terms = self._bind(problem, x, rng)
        arrives = self._arrival and self._count < terms.size
        self._arrival = not self._arrival
        if arrives:
            self._count += 1
            self._mean *= (self._count - 1) / self._count
        held = self._count
        place: int | Indices = held - 1
        if not arrives:
            place = rng.integers(held, size=x.shape[:-1]) if self._runs else draw_index(held, rng)
        index = self._order[*self._runs, place]
        g = super().denoised(x, terms.example_gradient(x, index))
        where = (*self._runs, index)
        change: Array = g - self._alpha[where]
        direction = self._mean + change
        self._alpha[where] = g
        self._mean += change / held
        return self.step(x, direction)

    def _bind(self, problem: Oracle, x: Array, rng: np.random.Generator) -> FiniteSum:
        """Take a problem, of which nothing has arrived yet, and draw the order of arrival."""
        if self._terms is not None:
            raise ValueError("STRSAGA remembers gradients of another problem; call reset() first.")
        if not is_finite_sum(problem):
            raise TypeError(
                "STRSAGA needs a finite sum with size and example_gradient(x, i), "
                f"got {type(problem).__name__}; use SGD or Adam for a plain oracle."
            )
        self._terms = problem
        self._runs = tuple(np.indices(x.shape[:-1]))
        self._alpha = np.zeros((*x.shape[:-1], problem.size, problem.dimension))
        self._mean = np.zeros(x.shape)
        order = np.broadcast_to(np.arange(problem.size), self._alpha.shape[:-1])
        self._order = rng.permuted(order, axis=-1)
        return problem
