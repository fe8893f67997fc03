"""Logistic regression: the paper's real problem, where the noise comes from picking examples."""

import math
from functools import cached_property

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser.curvature import linear_model
from coco_denoiser.paper.problems.base import Indices, as_points, draw_index
from coco_denoiser.typing import Array, ArrayLike


class LogisticRegression:
    r"""Fit a linear classifier without intercept by maximum likelihood.

    $$\operatorname{argmin}_x\ \frac1n \sum_i \log(1 + \exp(-b_i\, a_i^\top x))
    + \frac{\text{regularization}}{2} \|x\|^2$$

    The Tikhonov term belongs to every example, so that the mean of the examples' gradients is
    the gradient of the objective. The oracle picks one example uniformly.

    Examples:
        >>> from coco_denoiser.paper.problems import LogisticRegression
        >>> problem = LogisticRegression([[1.0], [-3.0]], [1, 1], regularization=0.1)
        >>> problem.L, problem.mu, problem.minimizer.round(2)
        (1.35, 0.1, array([-0.41]))

    Args:
        features: the rows $a_i$, (n, d).
        labels: $b_i$, (n,), each -1 or +1.
        regularization: the weight of the Tikhonov term, 0 for none.

    Attributes:
        L: $\|A\|_2^2 / (4 n)$ + regularization, the largest curvature of the objective.
        mu: regularization, since the curvature of the loss vanishes far out.
    """

    def __init__(
        self, features: ArrayLike, labels: ArrayLike, *, regularization: float = 0.0
    ) -> None:
        A, b = check.table("features", features), np.asarray(labels, dtype=np.float64)
        if not A.any():
            raise ValueError("features must not all be 0: the objective would be constant.")
        if b.shape != (len(A),):
            raise ValueError(f"labels must have shape ({len(A)},), got {b.shape}.")
        if not np.isin(b, (-1.0, 1.0)).all():
            raise ValueError(
                f"labels must be -1 or +1, got {np.unique(b)[:4]}; "
                "coco_denoiser.paper.problems.signed_labels converts any two classes."
            )
        # Only the product b_i a_i enters the loss; with the sign turned, its gradient is
        # expit(z_i^T x) z_i.
        self._signed = -b[:, np.newaxis] * A
        self.size, self.dimension = A.shape
        self.regularization = check.not_negative("regularization", regularization)
        self._scale = float(np.sqrt(np.einsum("ij,ij->i", A, A).mean()))
        self.L, self.mu = linear_model("logistic", A, regularization=self.regularization)

    def value(self, x: Array) -> Array:
        """Return f at one point (d,), or at each of a batch (..., d)."""
        points = as_points(x, self.dimension)
        flat = points.reshape(-1, self.dimension)
        losses: Array = np.logaddexp(0.0, flat @ self._signed.T).mean(axis=1)
        # Without the term, the square of a huge x might overflow for nothing.
        if self.regularization:
            losses += 0.5 * self.regularization * np.einsum("ij,ij->i", flat, flat)
        values: Array = losses.reshape(points.shape[:-1])[()]
        return values

    def gradient(self, x: Array) -> Array:
        """Return the full gradient at one point (d,), or at each of a batch (..., d)."""
        points = as_points(x, self.dimension)
        flat = points.reshape(-1, self.dimension)
        slopes = _expit(flat @ self._signed.T)
        gradients: Array = self.regularization * flat + slopes @ self._signed / self.size
        return gradients.reshape(points.shape)

    def hessian(self, x: Array) -> Array:
        """Return the matrix (d, d) of second derivatives at one point (d,)."""
        margins = self._signed @ as_points(x, self.dimension)
        # expit(t) (1 - expit(t)) would lose the small factor to cancellation.
        weights = _expit(margins) * _expit(-margins) / self.size
        H: Array = (self._signed.T * weights) @ self._signed
        H[np.diag_indices_from(H)] += self.regularization
        return H

    def example_gradient(self, x: Array, index: int | Indices) -> Array:
        """Return the gradient of example `index` at x.

        Indices (m,) with one point (d,) give the gradients (m, d) of m examples there; with
        points (m, d), the gradient of one example at each.
        """
        x = as_points(x, self.dimension)
        z = self._signed[index]
        if z.ndim == 1 and x.ndim == 1:
            # By tanh: expit costs a microsecond on a scalar, and this is called once a step.
            gradient = 0.5 * (1.0 + math.tanh(0.5 * float(z.dot(x)))) * z
            if self.regularization:
                gradient += self.regularization * x
            return gradient
        slopes = _expit(np.einsum("...i,...i->...", z, x))
        gradients: Array = slopes[..., np.newaxis] * z + self.regularization * x
        return gradients

    def oracle(self, x: Array, rng: np.random.Generator) -> Array:
        """Return the gradient of one example per point, each drawn uniformly."""
        x = as_points(x, self.dimension)
        if x.ndim == 1:
            return self.example_gradient(x, draw_index(self.size, rng))
        return self.example_gradient(x, rng.integers(self.size, size=x.shape[:-1]))

    @cached_property
    def minimizer(self) -> Array:
        """The point (d,) where f is least, to the last digits that double precision gives.

        A trust-region Newton method from SciPy, then plain Newton steps; the answer is checked
        by the gradient's norm and by the size of one more Newton step.

        Raises:
            ArithmeticError: if there is no unique minimizer, as for separable classes or
                linearly dependent features without regularization.
        """
        from scipy.optimize import minimize  # noqa: PLC0415 - an extra of the experiments

        result = minimize(
            self.value,
            np.zeros(self.dimension),
            jac=self.gradient,
            hess=self.hessian,
            method="trust-exact",
            options={"gtol": 1e-9 * self._scale, "maxiter": 1000},
        )
        x = np.asarray(result.x, dtype=np.float64)
        for _ in range(3):
            x = x - self._newton_step(x)
        norm = float(np.linalg.norm(self.gradient(x)))
        step = float(np.linalg.norm(self._newton_step(x)))
        # On separable classes the gradient vanishes along a ray, but Newton's step does not.
        if not (norm <= 1e-10 * self._scale and step <= 1e-8 * (1e-3 + np.linalg.norm(x))):
            raise ArithmeticError(
                f"no unique minimizer found (gradient norm {norm:.1e}, next step {step:.1e}): "
                "the classes are separable or features dependent; pass regularization > 0."
            )
        return x

    def _newton_step(self, x: Array) -> Array:
        H = self.hessian(x)
        eigenvalues = np.linalg.eigvalsh(H)
        if not eigenvalues[0] > 1e-13 * eigenvalues[-1]:
            raise ArithmeticError(
                f"no unique minimizer: the Hessian's eigenvalues reach from {eigenvalues[0]:.1e} "
                f"to {eigenvalues[-1]:.1e}; pass regularization > 0."
            )
        return np.linalg.solve(H, self.gradient(x))


def _expit(t: Array) -> Array:
    """Return 1 / (1 + exp(-t))."""
    from scipy.special import expit  # noqa: PLC0415 - an extra of the experiments

    return np.asarray(expit(t))
