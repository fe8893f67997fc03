"""Compilation, in one place: every compiled function is cached on disk."""

import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

import numba
from numba.core import event

F = TypeVar("F", bound=Callable[..., object])

# Products may be fused with sums; nothing may be reordered. A function that others call exists
# in several copies, optimised in different surroundings, and which one runs depends on what was
# compiled in this process and what came from the cache: reordered sums would make the last bits
# of a result depend on that. NaN and infinity keep their meaning, so that checks for them work.
_OPTIONS: dict[str, Any] = {
    "fastmath": {"contract", "nsz"},
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
}

_njit: Any = numba.njit  # not all options are in its type hints


def kernel(function: F) -> F:
    """Compile `function` on its first call and keep the machine code for later processes."""
    return _compiled(function, _OPTIONS)


def subroutine(function: F) -> F:
    """Compile a function that only kernels call; without an entry from Python, that is faster."""
    return _compiled(function, {**_OPTIONS, "no_cpython_wrapper": True})


def sweep(function: F) -> F:
    """Compile a pass over long vectors, whose sums may be reordered so that they vectorise.

    Its sums must be its own or a fragment's, never a subroutine's, so that only one copy exists.
    """
    return _compiled(function, {**_OPTIONS, "fastmath": {"contract", "nsz", "reassoc"}})


def fragment(function: F) -> F:
    """Make a function part of every kernel or sweep that calls it, by the caller's rules.

    Called from Python, it is a kernel of its own.
    """
    return _compiled(function, {**_OPTIONS, "inline": "always"})


def _compiled(function: F, options: dict[str, Any]) -> F:
    try:
        return cast("F", _njit(cache=True, **options)(function))
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
    # Not a shared temporary folder: others may write there, and what is in a cache is executed.
    _say_uncached()
    return cast("F", _njit(**options)(function))


@cache
def _say_uncached() -> None:
    warnings.warn(
        "compiled code cannot be kept, since neither the package's folder nor the user's cache "
        "folder is writable: every process will compile it again. Set NUMBA_CACHE_DIR to a "
        "folder of your own that can be written to",
        RuntimeWarning,
        stacklevel=2,
    )


class _Compiling(event.Listener):
    """Tell a user at a terminal, once, why the first call takes seconds."""

    def on_start(self, event: Any) -> None:
        """See a function that was not in the cache."""
        module = event.data["dispatcher"].py_func.__module__ or ""  # None for code made by exec
        if module.startswith("coco_denoiser"):
            _say_compiling()

    def on_end(self, event: Any) -> None:
        """Say nothing."""


@cache
def _say_compiling() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("coco-denoiser: compiling the solver, once …\n")


_register: Any = event.register  # it has no type hints
_register("numba:compile", _Compiling())
