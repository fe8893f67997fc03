"""What Numba needs to reach a tensor by its address."""

from collections.abc import Callable
from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

carray: Any = vars(numba)["carray"]  # not in its type hints


def _to_pointer(_: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
    """Say how Numba turns an address into a pointer."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


pointer: Any = intrinsic(_to_pointer)
