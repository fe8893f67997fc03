"""Some columns of an observation at a time: of vectors, or of tensors here and there in memory.

A vector of tensors is described by their places, (3, T + 1): their addresses, where they begin in
the vector, and their sizes. What lies between them is zero. The last column stands for the end.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numba
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from coco_denoiser._jit import fragment
from coco_denoiser.typing import Array, Int64

Source: TypeAlias = Array | Int64  # a vector, or places


@fragment
def fill(
    x: Source, g: Source, c: float, t: int, a: int, b: int, X: Array, G: Array, H: Array
) -> int:
    """Write the columns a to b of x to X, of g to G, and of g - c x to H.

    Args:
        x: where the gradient was observed.
        g: the gradient.
        c: the centre of the residuals.
        t: the tensor that the columns begin in; 0 for the first.
        a: the first column.
        b: the column after the last.
        X: (b - a,), for x.
        G: (b - a,), for g.
        H: (b - a,), for g - c x.

    Returns:
        The tensor that the next columns begin in.
    """
    done = a
    while done < b:
        first, p = tensor(x, t, X)
        end, q = first + p.size, tensor(g, t, X)[1]
        start, stop = min(max(first, a), b), min(end, b)
        for j in range(done - a, start - a):
            X[j] = G[j] = H[j] = 0
        if start < stop:
            p, q = p[start - first : stop - first], q[start - first : stop - first]
            u, v, w = X[start - a : stop - a], G[start - a : stop - a], H[start - a : stop - a]
            for j in range(u.size):
                u[j] = p[j]
                v[j] = q[j]
                w[j] = q[j] - c * p[j]
        done = max(start, stop)
        if end <= b:
            t += 1
    return t


def _to_pointer(_: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
    """Say how Numba turns an address into a pointer."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


_pointer: Any = intrinsic(_to_pointer)
_carray: Any = vars(numba)["carray"]  # not in its type hints


def tensor(source: Source, t: int, like: Array) -> tuple[int, Array]:
    """Return where a tensor begins in its vector, and the tensor. A vector is the only one."""
    raise NotImplementedError


def _typed(source: Any, t: Any, like: Any) -> Callable[..., Any]:
    """Say how Numba does it, which depends on the type of a source."""
    del t, like

    def of_vector(source: Any, t: Any, like: Any) -> Any:  # noqa: ARG001
        return 0, source

    def of_places(source: Any, t: Any, like: Any) -> Any:
        return source[1, t], _carray(_pointer(source[0, t]), (source[2, t],), like.dtype)

    return of_vector if source.ndim == 1 else of_places


_register: Any = overload(tensor)
_register(_typed)
