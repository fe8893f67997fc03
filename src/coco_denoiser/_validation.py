"""What input must be, for every interface. Every error names the argument and what is allowed."""

import math
from collections.abc import Collection
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike

from coco_denoiser._core import kernels
from coco_denoiser.typing import AnyArray, AnyDType, Array, Float64, Saved

# The largest magnitude of an entry of a point, a gradient or a residual: squares of differences
# stay in range, with room for ten million of them. In JAX distances are limited: `optax/step.py`.
LIMITS = {np.dtype(np.float32): 1e37, np.dtype(np.float64): 1e150}
_UNKNOWN_L = (
    " If you do not know it, pass model=Gaussian(), which needs none, or compute it with "
    "coco_denoiser.curvature, from the data of a linear model or from Hessian-vector products."
)


def real_array(name: str, value: ArrayLike) -> AnyArray:
    """Return `value` as an array of real numbers; refuse masks, text, objects and complex."""
    if type(value) is np.ndarray and value.dtype.kind in "iuf":
        return value
    try:
        masked = np.ma.is_masked(np.ma.asarray(value))  # a list of masked rows too
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must be a rectangular array of numbers: {error}.") from None
    if masked:
        raise ValueError(f"{name} must not be masked. Drop the observations that are.")
    if array.dtype.kind not in "iuf":
        raise TypeError(
            f"{name} must hold real numbers, got dtype {array.dtype}. Convert it, for instance "
            f"with numpy.asarray({name}, dtype=float)."
        )
    return array


def finite_array(name: str, value: ArrayLike) -> Float64:
    """Return `value` as a contiguous float64 array without NaN or infinity."""
    array = np.ascontiguousarray(real_array(name, value), dtype=np.float64)
    # A sum of squares is quicker to look at; it is also infinite if it overflows.
    if not (math.isfinite(np.vdot(array, array)) or np.isfinite(array).all()):
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(
            f"{name} must be finite, got {array[where]} at index {where}. Drop that observation."
        )
    return array


def observations(points: ArrayLike, gradients: ArrayLike) -> tuple[Float64, Float64]:
    """Return points and gradients, both (K, d) with K, d >= 1; `in_range` looks at the numbers."""
    x = np.ascontiguousarray(real_array("points", points), dtype=np.float64)
    g = np.ascontiguousarray(real_array("gradients", gradients), dtype=np.float64)
    if x.ndim != 2 or x.size == 0:
        raise ValueError(
            "points must have shape (K, d) with K >= 1 observations in d >= 1 dimensions, got "
            f"shape {x.shape}."
        )
    if x.shape != g.shape:
        raise ValueError(
            f"points and gradients must have the same shape, got {x.shape} and {g.shape}."
        )
    return x, g


def in_range(points: Float64, gradients: Float64, c: float) -> None:
    """Raise ValueError unless all is finite and at most as large as it may be."""
    if not kernels.fits(points, gradients, c, LIMITS[points.dtype]):
        raise refusal(points, gradients, c, "points", "gradients")


def refusal(x: Array, g: Array, c: float, point: str, gradient: str) -> ValueError:
    """Return why observations are refused: they are not finite, or too large.

    Args:
        x: where they were made.
        g: the gradients.
        c: centre of the curvature bounds.
        point: what the caller calls x.
        gradient: what the caller calls g.
    """
    finite_array(point, x)
    finite_array(gradient, g)
    limit = LIMITS[g.dtype]
    return ValueError(
        f"{point}, {gradient} and {gradient} - c * {point} (c = (L + mu) / 2 = {c}) must not "
        f"exceed {limit:.0e}, the largest magnitude that a window of {g.dtype} holds, got "
        f"{np.abs(x).max():.1e} and {np.abs(g).max():.1e}. "
        f"Rescale the problem{', or pass float64' if limit < 1e150 else ''}."
    )


def pair(
    point: ArrayLike, gradient: ArrayLike, shape: tuple[int, ...] | None
) -> tuple[AnyArray, AnyArray]:
    """Return one point and its gradient, of one shape: the given one, if there is one."""
    x, g = real_array("point", point), real_array("gradient", gradient)
    if x.shape != g.shape:
        raise ValueError(
            f"point and gradient must have the same shape, got {x.shape} and {g.shape}."
        )
    if shape is not None and g.shape != shape:
        raise ValueError(
            f"point and gradient must have the shape of the earlier ones, {shape}, got "
            f"{g.shape}. Call reset() to start with another shape."
        )
    if g.size == 0:
        raise ValueError(f"gradient must have at least one entry, got shape {g.shape}.")
    return x, g


def number(name: str, value: object) -> float:
    """Return a finite real number."""
    if type(value) is float and math.isfinite(value):
        return value
    known = isinstance(value, (Real, np.number, np.ndarray)) and not np.ma.is_masked(value)
    array = np.asarray(value if known else None)
    if array.ndim or array.dtype.kind not in "iuf":
        hint = _UNKNOWN_L if name == "L" and (value is None or isinstance(value, str)) else ""
        raise TypeError(f"{name} must be a real number, got {value!r}.{hint}")
    result = float(array)
    if not math.isfinite(result):
        raise ValueError(f"{name} must be finite, got {result}.")
    return result


def curvature(L: object, mu: object) -> tuple[float, float]:
    """Return the curvature bounds, L > 0 and mu < L."""
    upper, lower = positive("L", L), number("mu", mu)
    if lower >= upper:
        raise ValueError(
            f"mu must be less than L, got mu={lower} and L={upper}. Use mu=0 for convex and "
            "mu=-L for merely smooth objectives."
        )
    return upper, lower


def positive(name: str, value: object) -> float:
    """Return a positive, finite number."""
    if type(value) is float and 0.0 < value < math.inf:  # in every step
        return value
    result = number(name, value)
    if result <= 0.0:
        raise ValueError(f"{name} must be positive and finite, got {result}.")
    return result


def not_negative(name: str, value: object) -> float:
    """Return a finite number of at least 0."""
    result = number(name, value)
    if result < 0.0:
        raise ValueError(f"{name} must be at least 0, got {result}.")
    return result


def table(name: str, value: ArrayLike) -> Float64:
    """Return a table (n, d) with n, d >= 1."""
    array = finite_array(name, value)
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f"{name} must be a table (n, d), got shape {array.shape}.")
    return array


def per_row(name: str, value: ArrayLike | None, n: int, *, zero: bool = False) -> Float64:
    """Return n positive numbers, or also zeros; None stands for ones."""
    if value is None:
        return np.ones(n)
    array = finite_array(name, value)
    if array.shape != (n,):
        raise ValueError(
            f"{name} must be one number for each of {n} rows, shape ({n},), got shape "
            f"{array.shape}. Use None for equal ones."
        )
    least = array.min(initial=np.inf)
    if least < 0.0 or (least == 0.0 and not zero):
        what = "at least 0" if zero else "positive"
        raise ValueError(f"{name} must be {what}, got {least} at index {array.argmin()}.")
    return array


def covariance(value: ArrayLike, d: int) -> Float64:
    """Return a covariance, (d,) if it is diagonal or (d, d), positive definite."""
    array = finite_array("covariance", value)
    if array.shape not in ((d,), (d, d)):
        raise ValueError(
            f"covariance must have shape ({d},), the variances of the coordinates, or "
            f"({d}, {d}), got shape {array.shape}."
        )
    if array.ndim == 2 and np.abs(array - array.T).max() > 1e-12 * np.abs(array).max():
        raise ValueError("covariance must be symmetric; pass (covariance + covariance.T) / 2.")
    least = float((array if array.ndim == 1 else np.linalg.eigvalsh(array)).min())
    if not least > 0.0:
        raise ValueError(
            f"covariance must be positive definite, got {least} as its smallest eigenvalue. Leave "
            "out directions without noise, or add a little to them."
        )
    return array


def count(name: str, value: object, *, optional: bool) -> int | None:
    """Return a positive integer, or None where that is allowed."""
    if value is None and optional:
        return None
    what = f"a positive integer{' or None' if optional else ''}"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (Integral, np.integer)):
        raise TypeError(f"{name} must be {what}, got {value!r}.")
    if int(value) < 1:
        raise ValueError(f"{name} must be {what}, got {value}.")
    return int(value)


def one_of(name: str, value: object, allowed: Collection[str]) -> str:
    """Return `value` if it is one of the allowed words."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}.")
    return value


def forgetting(value: object, window: int | None) -> str:
    """Return what becomes of an observation that leaves a window: "drop" or "fold"."""
    forget = one_of("forget", value, ("drop", "fold"))
    if forget == "fold" and window == 1:
        raise ValueError(
            "forget='fold' needs a window of at least 2, got window=1: what leaves has no "
            "successor in the window. Use window=2, which stores no more vectors."
        )
    return forget


def damaged(what: str) -> ValueError:
    """Return the error of a saved state that no stream can have written."""
    return ValueError(f"state is damaged: {what}. Nothing has changed; load another copy.")


def saved_count(state: Saved, name: str, least: int, most: int | None) -> int:
    """Return an integer of a saved state, between two bounds."""
    value = np.asarray(state[name])
    if value.ndim or value.dtype.kind not in "iu" or int(value) < least:
        raise damaged(f"{name} must be an integer of at least {least}, got {value}")
    if most is not None and int(value) > most:
        raise damaged(f"{name} must be at most {most}, got {value}")
    return int(value)


def saved(state: Saved, name: str, shape: tuple[int, ...], *, kind: AnyDType | None) -> AnyArray:
    """Return an array of a saved state; of float32 or float64, unless one of them is named."""
    array = np.asarray(state[name])
    allowed = [np.dtype(k) for k in (np.float32, np.float64)] if kind is None else [kind]
    if 0 in shape and not array.size:
        array = array.reshape(shape)  # of no observation
    if array.dtype not in allowed or array.shape != shape:
        raise damaged(
            f"{name} must have shape {shape} and dtype {' or '.join(map(str, allowed))}, got "
            f"{array.shape} and {array.dtype}"
        )
    if not np.isfinite(array).all():
        raise damaged(f"{name} must be finite")
    return array


def saved_table(state: Saved, name: str, count: int) -> Float64:
    """Return a table of a saved state, symmetric with zeros on its diagonal."""
    table = saved(state, name, (count, count), kind=np.dtype(np.float64))
    if not ((table == table.T).all() and not table.diagonal().any()):
        raise damaged(f"{name} must be symmetric, and zero on the diagonal")
    return table
