"""How likely a ratio t = s^2 / sigma^2 of slope and noise is, from the contrasts of a window.

Contrast k has the squared norm y_k, in d coordinates, and moved as far as kappa_k says:

    y_k ~ sigma^2 (1 + t kappa_k) chi^2_d.

Where sigma is not known, it is integrated out; sigma2 is NaN then.
"""

import math

import numpy as np

from coco_denoiser._jit import subroutine
from coco_denoiser.typing import Float64

NODES = 24  # ratios at which the likelihood is evaluated
NEGLIGIBLE = 12.0  # below the maximum of the log likelihood


@subroutine
def noise_variance(kappa: Float64, y: Float64, d: float, t: float, sigma2: float) -> float:
    """Return sigma^2 as given, or what is most likely for a ratio."""
    if not math.isnan(sigma2):
        return sigma2
    total = 0.0
    for k in range(y.size):
        total += y[k] / (1.0 + t * kappa[k])
    return total / (d * y.size)


@subroutine
def _log_likelihood(kappa: Float64, y: Float64, d: float, t: float, sigma2: float) -> float:
    """Return the log likelihood of a ratio, sigma integrated out, times Jeffreys' prior.

    The prior of log t is the root of the information that a window of such a shape holds on it.
    Without it the most likely slope is often zero, and old gradients then count in full.
    """
    log_det, product, total, one, two = 0.0, 1.0, 0.0, 0.0, 0.0
    for k in range(y.size):
        a = 1.0 + t * kappa[k]
        f = t * kappa[k] / a
        total += y[k] / a
        one += f
        two += f * f
        product *= a
        if product > 1e100:
            log_det += math.log(product)
            product = 1.0
    log_det += math.log(product)
    if math.isnan(sigma2):
        fit = d * y.size * math.log(max(total, 1e-300))
        information = two - one * one / y.size
    else:
        fit, information = total / sigma2, two
    return 0.5 * (math.log(max(information, 1e-300)) - d * log_det - fit)


@subroutine
def _derivative(kappa: Float64, y: Float64, d: float, t: float, sigma2: float) -> float:
    """Return the derivative of that with respect to log t."""
    total, pull, one, two, d_one, d_two = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(y.size):
        a = 1.0 + t * kappa[k]
        f = t * kappa[k] / a
        total += y[k] / a
        pull += f * y[k] / a
        one += f
        two += f * f
        d_one += f / a
        d_two += 2.0 * f * f / a
    if math.isnan(sigma2):
        pull *= d * y.size / max(total, 1e-300)
        information, change = two - one * one / y.size, d_two - 2.0 * one * d_one / y.size
    else:
        pull /= sigma2
        information, change = two, d_two
    return 0.5 * (change / max(information, 1e-300) - d * one + pull)


@subroutine
def capped_ratio(kappa: Float64, y: Float64, d: float, sigma2: float, top: float) -> float:
    """Return the ratio at which s^2 reaches its cap; infinite if it never does."""
    last = y.size - 1
    if not (top < np.inf and kappa[last] > 0.0):
        return np.inf
    low, high = 1e-12 / kappa[last], 1e30 / kappa[last]
    if high * noise_variance(kappa, y, d, high, sigma2) <= top:
        return np.inf
    for _ in range(100):
        middle = math.sqrt(low) * math.sqrt(high)
        if middle * noise_variance(kappa, y, d, middle, sigma2) <= top:
            low = middle
        else:
            high = middle
    return float(low)


@subroutine
def most_likely_ratio(kappa: Float64, y: Float64, d: float, sigma2: float, limit: float) -> float:
    """Return the most likely ratio up to a limit."""
    last = y.size - 1
    least = kappa[last]
    if least <= 0.0:
        return 0.0
    for k in range(y.size):
        if kappa[k] > 0.0:
            least = min(least, kappa[k])
    low = math.log(1e-6 / kappa[last])
    high = math.log(min(1e16 / least, limit))
    low = min(low, high - 1.0)
    width = (high - low) / (NODES - 1)
    best, at = -np.inf, 0
    for n in range(NODES):
        value = _log_likelihood(kappa, y, d, math.exp(low + n * width), sigma2)
        if value > best:
            best, at = value, n
    a, b = low + max(at - 1, 0) * width, low + min(at + 1, NODES - 1) * width
    for _ in range(48):
        middle = 0.5 * (a + b)
        if _derivative(kappa, y, d, math.exp(middle), sigma2) > 0.0:
            a = middle
        else:
            b = middle
    return math.exp(0.5 * (a + b))


@subroutine
def uncertainty(
    kappa: Float64, y: Float64, d: float, sigma2: float, best: float, limit: float, f: Float64
) -> tuple[float, Float64, Float64]:
    """Average over the ratios that the window allows, in proportion to their likelihood.

    Returns the means of sigma^2, of sigma^2 f_k(t), and of (f_k(t) - f_k) (f_l(t) - f_l).
    """
    n = y.size
    noise, F, C = 0.0, np.zeros(n), np.zeros((n, n))
    low = high = math.log(best) if best > 0.0 else 0.0
    if best > 0.0:
        low = _edge(kappa, y, d, sigma2, best, -1.0, np.inf)
        high = _edge(kappa, y, d, sigma2, best, 1.0, limit)
    total, top = 0.0, _log_likelihood(kappa, y, d, best, sigma2)
    nodes = NODES if high > low else 1
    change = np.empty(n)
    for m in range(nodes):
        t = math.exp(low + (high - low) * m / (NODES - 1)) if best > 0.0 else 0.0
        chance = math.exp(min(_log_likelihood(kappa, y, d, t, sigma2) - top, 0.0))
        sigma = chance * noise_variance(kappa, y, d, t, sigma2)
        total += chance
        noise += sigma
        for k in range(n):
            at = t * kappa[k] / (1.0 + t * kappa[k])
            F[k] += sigma * at
            change[k] = at - f[k]
        for k in range(n):
            for i in range(k + 1):
                C[k, i] += chance * change[k] * change[i]
    for k in range(n):
        F[k] /= total
        for i in range(k + 1):
            C[k, i] /= total
            C[i, k] = C[k, i]
    return noise / total, F, C


@subroutine
def _edge(
    kappa: Float64, y: Float64, d: float, sigma2: float, best: float, sign: float, limit: float
) -> float:
    """Return the log of the ratio, on one side of the best, beyond which others are unlikely."""
    least = _log_likelihood(kappa, y, d, best, sigma2) - NEGLIGIBLE
    start, near, far = math.log(best), 0.0, 1.0 / math.sqrt(d * y.size)
    end = min(30.0, math.log(limit) - start) if sign > 0.0 else 30.0
    far = min(far, end)
    while far < end and (
        _log_likelihood(kappa, y, d, math.exp(start + sign * far), sigma2) > least
    ):
        near, far = far, min(2.0 * far, end)
    for _ in range(6):
        middle = 0.5 * (near + far)
        if _log_likelihood(kappa, y, d, math.exp(start + sign * middle), sigma2) > least:
            near = middle
        else:
            far = middle
    return start + sign * far
