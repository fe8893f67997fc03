"""Compilation, in one place: every compiled function is cached on disk."""

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import event

F = TypeVar("F", bound=Callable[..., object])

# Nothing may be fused or reordered. A function that others call exists in several copies,
# optimised in different surroundings, and which one runs depends on what was compiled in this
# process and what came from the cache: otherwise the last bits of a result would depend on that.
# NaN and infinity keep their meaning, so that checks for them work.
_OPTIONS: dict[str, Any] = {
    "fastmath": {"nsz"},
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
}

_njit: Any = numba.njit  # not all options are in its type hints
_FOLDERS = ("XDG_CACHE_HOME", "HOME", "LOCALAPPDATA")  # what Numba finds the user's cache by


def kernel(function: F) -> F:
    """Compile `function` on its first call and keep the machine code for later processes."""
    return _compiled(function, _OPTIONS)


def subroutine(function: F) -> F:
    """Compile a function that only kernels call; without an entry from Python, that is faster."""
    return _compiled(function, {**_OPTIONS, "no_cpython_wrapper": True})


def sweep(function: F) -> F:
    """Compile a function whose sums may be reordered, so that they vectorise.

    Its sums must be its own or a fragment's, never a subroutine's, so that only one copy exists.
    """
    return _compiled(function, {**_OPTIONS, "fastmath": {"contract", "nsz", "reassoc"}})


def fragment(function: F) -> F:
    """Make a function part of every kernel or sweep that calls it, by the caller's rules.

    Called from Python, it is a kernel of its own.
    """
    return _compiled(function, {**_OPTIONS, "inline": "always"})


def _compiled(function: F, options: dict[str, Any]) -> F:
    compiled = _njit(**options)(function)
    try:
        with _absolute_folders():
            compiled.enable_caching()
        if _is_own(compiled._cache.cache_path):  # noqa: SLF001
            return cast("F", compiled)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
    # Not a folder of others, or a shared temporary one: what is in a cache is executed.
    _warn_uncached()
    return cast("F", _njit(**options)(function))


@contextmanager
def _absolute_folders() -> Iterator[None]:
    """Ignore folders of the user that are not absolute, as the XDG specification says.

    Numba would else write below the current folder, and execute what lies there.
    """
    names = [name for name in _FOLDERS if not Path(os.environ.get(name, "/")).is_absolute()]
    removed = {name: os.environ.pop(name) for name in names}
    try:
        yield
    finally:
        os.environ.update(removed)


def _is_own(folder: str) -> bool:
    """Say whether a folder is absolute and the user's, or named in NUMBA_CACHE_DIR."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return True
    path = Path(folder)
    return path.is_absolute() and (os.name == "nt" or path.stat().st_uid == os.geteuid())


@cache
def _warn_uncached() -> None:
    warnings.warn(
        "compiled code cannot be kept, since neither the package's folder nor the user's cache "
        "folder is writable and the user's own: every process will compile it again. Set "
        "NUMBA_CACHE_DIR to a folder of your own that can be written to",
        RuntimeWarning,
        stacklevel=2,
    )


class _Compiling(event.Listener):
    """Say why the first call takes seconds."""

    def on_start(self, event: Any) -> None:
        """See a function that was not in the cache."""
        module = event.data["dispatcher"].py_func.__module__ or ""  # None for code made by exec
        if module.startswith("coco_denoiser"):
            _say_compiling()

    def on_end(self, event: Any) -> None:
        """Say nothing."""


@cache
def _say_compiling() -> None:
    # Without handlers, logging writes it to standard error: in notebooks and in files too.
    logging.getLogger("coco_denoiser").warning("compiling kernels (first run only) …")


_register: Any = event.register  # it has no type hints
_register("numba:compile", _Compiling())
