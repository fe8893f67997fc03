"""Run an optimizer on a problem, and average its path."""

from collections.abc import Callable

import numpy as np

from coco_denoiser.descent import proximal_map
from coco_denoiser.oracle import FunctionOracle, GradientFunction
from coco_denoiser.paper.optimizers.base import Optimizer
from coco_denoiser.paper.problems.base import Oracle
from coco_denoiser.path import Project, Prox
from coco_denoiser.typing import Array, ArrayLike


def tail_average(iterates: Array, start: int = 0) -> Array:
    r"""Return the averages of a path from iterate `start` on (Jain et al., 2018), as a path.

    $$\bar x_k = \frac{1}{k - \text{start} + 1} \sum_{j=\text{start}}^k x_j,
    \quad\text{and } x_k \text{ itself before that}$$

    With start=0 this is the average of Polyak and Ruppert. The first iterates mostly remember
    $x_0$; leaving them out keeps the noise reduction of an average without its slow start.

    Examples:
        >>> import numpy as np
        >>> from coco_denoiser.paper.optimizers import tail_average
        >>> tail_average(np.array([8.0, 4.0, 2.0]), start=1)
        array([8., 4., 3.])
    """
    if start < 0:
        raise ValueError(f"start must be at least 0, got {start}.")
    means = np.array(iterates)
    for k in range(start + 1, len(means)):
        means[k] = means[k - 1] + (iterates[k] - means[k - 1]) / (k - start + 1)
    return means


def run(
    optimizer: Optimizer,
    problem: Oracle | GradientFunction,
    x0: ArrayLike,
    *,
    steps: int,
    rng: np.random.Generator | None = None,
    project: Project | None = None,
    prox: Prox | None = None,
) -> Array:
    """Minimise `problem` from x0 by `steps` steps of `optimizer`.

    The optimizer and its denoiser are reset first, so the path depends on the arguments and the
    generator's state alone.

    Examples:
        >>> import numpy as np
        >>> from coco_denoiser import Denoiser
        >>> from coco_denoiser.paper.optimizers import SGD, run
        >>> from coco_denoiser.paper.problems import Quadratic
        >>> problem = Quadratic([1.0, 0.5], noise_std=1.0)
        >>> def distance(optimizer):
        ...     rng = np.random.default_rng(0)
        ...     path = run(optimizer, problem, [5.0, 5.0], steps=200, rng=rng)
        ...     return np.linalg.norm(path[100:], axis=1).mean()
        >>> distance(SGD(1.0, denoiser=Denoiser(L=1.0))) < 0.5 * distance(SGD(1.0))
        np.True_

    Args:
        optimizer: any of this package.
        problem: an objective with its oracle, or a plain function: gradient(x), or
            gradient(x, rng), returns a noisy gradient at x.
        x0: the starting point (d,), or a batch (runs, d) of independent runs; a denoiser is then
            called with the whole batch.
        steps: how many steps to take.
        rng: the only source of randomness. A function gradient(x) needs none.
        project: project(x) is the next iterate in the place of x, where the next gradient is
            observed. x0 is taken as it is.
        prox: the same with the step that was taken, prox(x, step): a proximal step. The step is a
            number, for Adam an array with one for each coordinate.

    Returns:
        The iterates from $x_0$ on, (steps + 1, d), as the optimizer's `answer` gives them.
    """
    apply = _constraint(optimizer, project, prox)
    x: Array = np.array(x0, dtype=np.float64)
    oracle = _oracle(problem, x)
    if rng is None and isinstance(oracle, FunctionOracle) and not oracle.draws:
        rng = np.random.default_rng()  # it is never asked
    if not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"rng must be a numpy.random.Generator, got {rng!r}; "
            "pass numpy.random.default_rng(seed)."
        )
    if steps < 0 or not float(steps).is_integer():
        raise ValueError(f"steps must be an integer of at least 0, got {steps!r}.")
    if x.shape[-1:] != (oracle.dimension,) or not np.isfinite(x).all():
        raise ValueError(
            f"x0 must be a finite point of {oracle.dimension} coordinates, got {x0!r}."
        )
    optimizer.reset()
    iterates = np.empty((steps + 1, *x.shape))
    iterates[0] = x
    for k in range(1, steps + 1):
        x = apply(optimizer.advance(oracle, x, rng))
        iterates[k] = optimizer.answer(x)
    return iterates


def _constraint(
    optimizer: Optimizer, project: Project | None, prox: Prox | None
) -> Callable[[Array], Array]:
    """Return what is applied after every step: the identity, a projection or a proximal step."""
    apply = proximal_map(project, prox)
    if apply is None:
        return lambda x: x
    if type(optimizer).answer is not Optimizer.answer:
        raise TypeError(
            f"{type(optimizer).__name__} keeps its iterates apart from the points where it asks, "
            "so project and prox cannot reach them; use SGD, GradientEMA or Adam."
        )
    return lambda x: np.asarray(apply(x, optimizer.last_step))


def _oracle(problem: Oracle | GradientFunction, x: Array) -> Oracle:
    if not callable(problem):
        if hasattr(problem, "oracle"):
            return problem
        raise TypeError(
            "problem must have an oracle, or be a function that returns a noisy gradient, "
            f"got {problem!r}."
        )
    return FunctionOracle(problem, x.shape[-1] if x.ndim else 1)
