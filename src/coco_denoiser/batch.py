"""denoise() and solve(): a batch of observations at once."""

from coco_denoiser import _validation as check
from coco_denoiser import solvers
from coco_denoiser._core import kernels
from coco_denoiser.models import gaussian
from coco_denoiser.problem import from_observations
from coco_denoiser.solution import Answer, ConvergenceError, Solution, Status
from coco_denoiser.typing import ArrayLike, Float64, ModelName


def denoise(
    points: ArrayLike,
    gradients: ArrayLike,
    *,
    L: float | None = None,
    mu: float = 0.0,
    model: ModelName | None = None,
    noise_variance: ArrayLike | None = None,
    covariance: ArrayLike | None = None,
) -> Float64:
    r"""Denoise K noisy gradients.

    They are projected onto the gradients that a smooth convex function can have:

    $$\begin{align*}
    \operatorname{argmin}_\theta\quad & \sum_i \|\theta_i - g_i\|^2 / v_i \\
    \text{subject to}\quad & \|\theta_m - \theta_l - c\,(x_m - x_l)\| \le r\,\|x_m - x_l\|
    \quad\text{for all pairs } m, l
    \end{align*}$$

    with $c = (L + \mu) / 2$ and $r = (L - \mu) / 2$. For $\mu = 0$ this is co-coercivity,
    $\|\theta_m - \theta_l\|^2 \le L\,\langle\theta_m - \theta_l, x_m - x_l\rangle$.

    With model="gaussian" they are modelled as a field with a random slope, $g_i = \theta_j +
    E (x_i - x_j) + n_i$ with Gaussian E and n, whose sizes are estimated from the observations;
    every $\theta_j$ is then estimated by generalised least squares.

    Input that is not finite, or exceeds 1e150, raises ValueError.

    Examples:
        The second gradient must not be smaller than the first, nor the third exceed it by more
        than L = 1:

        >>> from coco_denoiser import denoise
        >>> denoise([[0.0], [1.0], [2.0]], [[0.5], [0.1], [2.5]], L=1.0)
        array([[0.5],
               [0.8],
               [1.8]])

    Args:
        points: (K, d), where the gradients were observed.
        gradients: (K, d), the noisy gradients.
        L: upper bound on the curvature of the objective. The Gaussian model needs none, and
            takes it as a cap on its slope.
        mu: lower bound: 0 convex, > 0 strongly convex, -L merely smooth.
        model: "cocoercive", which is the default, or "gaussian".
        noise_variance: (K,), the noise variance $v_i$ of each observation; None if they are equal.
        covariance: (d,) or (d, d), the covariance $S$ that all gradients' noise shares, up to
            $v_i$: the objective becomes
            $\sum_i \langle\theta_i - g_i, S^{-1} (\theta_i - g_i)\rangle / v_i$.

    Returns:
        (K, d), the denoised gradients. `solve` returns them with a certificate.

    References:
        Madeira, Negrinho, Xavier and Aguiar, [COCO denoiser: using co-coercivity for variance
        reduction in stochastic convex optimization](https://arxiv.org/abs/2109.03207), 2021.
    """
    return solve(
        points,
        gradients,
        L=L,
        mu=mu,
        model=model,
        noise_variance=noise_variance,
        covariance=covariance,
    ).gradients


def solve(
    points: ArrayLike,
    gradients: ArrayLike,
    *,
    L: float | None = None,
    mu: float = 0.0,
    model: ModelName | None = None,
    noise_variance: ArrayLike | None = None,
    covariance: ArrayLike | None = None,
    method: str = "auto",
    tol: float = 1e-9,
    max_iter: int | None = None,
    throw: bool = True,
) -> Solution:
    """Solve the problem of `denoise`, and return the answer with its certificate.

    Examples:
        >>> from coco_denoiser import solve
        >>> solution = solve([[0.0], [1.0], [2.0]], [[0.5], [0.1], [2.5]], L=1.0)
        >>> solution.status.success, solution.gap < 1e-9
        (True, True)
        >>> solution.weights.round(2)  # the first gradient obeys its bounds as it is
        array([[1.  , 0.  , 0.  ],
               [0.  , 0.63, 0.37],
               [0.  , 0.37, 0.63]])

    Args:
        points: (K, d), where the gradients were observed.
        gradients: (K, d), the noisy gradients.
        L: upper bound on the curvature of the objective.
        mu: lower bound: 0 convex, > 0 strongly convex, -L merely smooth.
        model: "cocoercive", which is the default, or "gaussian".
        noise_variance: (K,), the noise variance of each observation; None for equal ones.
        covariance: (d,) or (d, d), the covariance of the noise of every gradient.
        method: "closed-form" (two distinct points), "newton" (ordinary problems), "barrier" (hard
            problems), "line" (one dimension), "fdpg" (the paper's Algorithm 1), or "auto", which
            chooses and names its choice in the solution.
        tol: relative duality gap, and relative violation, to reach.
        max_iter: limit on the iterations; None leaves it to the method.
        throw: whether to raise ConvergenceError where `tol` is not reached; the solution it
            carries is what `throw=False` returns.
    """
    x, g = check.observations(points, gradients)
    variances = check.variances(noise_variance, len(x))
    tol = check.positive("tol", tol)
    name = check.model(
        model,
        L,
        cocoercive={
            "mu": mu or None,
            "covariance": covariance,
            "method": None if method == "auto" else method,
            "max_iter": max_iter,
        },
    )
    if name == "gaussian":
        check.in_range(x, g, 0.0)
        cap = None if L is None else check.positive("L", L)
        solution = gaussian.solution(x, g, variances, L=cap, tol=tol)
    else:
        L, mu = check.curvature(L, mu)
        check.one_of("method", method, ("auto", *solvers.METHODS))
        max_iter = check.count("max_iter", max_iter, optional=True)
        if covariance is not None:
            covariance = check.covariance(covariance, x.shape[1])
        problem, units = from_observations(
            x, g, L=L, mu=mu, variances=variances, covariance=covariance
        )
        ordinary = method == "auto" and covariance is None
        found = _solve_ordinary(units.batch, tol, max_iter) if ordinary else None
        if found is None:
            answer = solvers.solve(problem, method=method, tol=tol, max_iter=max_iter)
            found = units.restore(answer, tol)
        solution = found
    if throw and not solution.status.success:
        raise ConvergenceError(solution, tol)
    return solution


def _solve_ordinary(batch: kernels.Batch, tol: float, max_iter: int | None) -> Solution | None:
    """Solve a problem in one compiled call; None if what it tries falls short."""
    found = batch.solve(tol, max_iter or -1, solvers.allowed(tol))
    if found is None:
        return None
    gradients, weights, multipliers, iterations, gap, violation, moved, name = found
    status = Status.SOLVED if moved else Status.UNCHANGED
    answer = Answer(gradients, weights, multipliers, gap, violation, iterations, name, status)
    return answer.solution(gradients, multipliers)
