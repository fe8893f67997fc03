"""denoise() and solve(): a batch of observations at once."""

from coco_denoiser import _validation as check
from coco_denoiser.models import Model, choose
from coco_denoiser.solution import ConvergenceError, Solution
from coco_denoiser.typing import ArrayLike, Float64


def denoise(
    points: ArrayLike,
    gradients: ArrayLike,
    *,
    L: float | None = None,
    model: Model | None = None,
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
    Another model, `Gaussian`, needs no L.

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
        L: upper bound on the curvature of the objective: short for `model=Cocoercive(L)`.
        model: `Cocoercive`, with its options, or `Gaussian`, which needs no L.
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
        model=model,
        noise_variance=noise_variance,
        covariance=covariance,
    ).gradients


def solve(
    points: ArrayLike,
    gradients: ArrayLike,
    *,
    L: float | None = None,
    model: Model | None = None,
    noise_variance: ArrayLike | None = None,
    covariance: ArrayLike | None = None,
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
        L: upper bound on the curvature of the objective: short for `model=Cocoercive(L)`.
        model: `Cocoercive`, which has the methods and their tolerance, or `Gaussian`.
        noise_variance: (K,), the noise variance of each observation; None for equal ones.
        covariance: (d,) or (d, d), the covariance of the noise of every gradient; not with the
            Gaussian model.
        throw: whether to raise ConvergenceError where `tol` is not reached; the solution it
            carries is what `throw=False` returns.
    """
    x, g = check.observations(points, gradients)
    variances = check.per_row("noise_variance", noise_variance, len(x))
    chosen = choose(L, model)
    if covariance is not None:
        covariance = check.covariance(covariance, x.shape[1])
    solution = chosen.batch(x, g, variances, covariance)
    if throw and not solution.status.success:
        raise ConvergenceError(solution, chosen.tol)
    return solution
