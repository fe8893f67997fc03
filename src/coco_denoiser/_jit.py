"""How every compiled function of the package is compiled: cached on disk, in one place."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])

# Sums may be reordered (so that they vectorise) and fused, but NaN and infinity keep their
# meaning: the checks for them must not be optimised away.
_FAST = {"reassoc", "contract", "nsz"}
_OPTIONS: dict[str, Any] = {
    "cache": True,
    "fastmath": _FAST,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
}


_njit: Any = numba.njit  # not all options are in its type hints


def kernel(function: F) -> F:
    """Compile `function` on its first call and keep the machine code for later processes."""
    return cast("F", _njit(**_OPTIONS)(function))


def subroutine(function: F) -> F:
    """Compile a function that only kernels call: without the way in from Python, in less time."""
    return cast("F", _njit(no_cpython_wrapper=True, **_OPTIONS)(function))
