"""How every compiled function of the package is compiled: cached on disk, in one place."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])

# Products may be fused with sums; nothing may be reordered. A function that others call exists
# in several copies, optimised in different surroundings, and which one runs depends on what was
# compiled in this process and what came from the cache: reordered sums would make the last bits
# of a result depend on that. NaN and infinity keep their meaning, so that checks for them work.
_OPTIONS: dict[str, Any] = {
    "cache": True,
    "fastmath": {"contract", "nsz"},
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


def sweep(function: F) -> F:
    """Compile a pass over long vectors, whose sums may be reordered so that they vectorise.

    Its sums must be its own or a fragment's, never a subroutine's: there is one copy of it then.
    """
    options = {**_OPTIONS, "fastmath": {"contract", "nsz", "reassoc"}}
    return cast("F", _njit(**options)(function))


def fragment(function: F) -> F:
    """Make a function part of every kernel or sweep that calls it, by the caller's rules."""
    return cast("F", _njit(inline="always")(function))
