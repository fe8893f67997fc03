"""Names for the types in signatures."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

if TYPE_CHECKING:
    ArrayLike: TypeAlias = npt.ArrayLike
else:
    # help() would spell NumPy's own alias out, in two thousand characters.
    class ArrayLike:
        """Anything that numpy.asarray takes: an array, a number, lists of them."""


# Any precision, any dtype; and what a checkpoint holds by name: arrays, tensors, numbers, text.
Array: TypeAlias = NDArray[np.floating[Any]]
AnyArray: TypeAlias = NDArray[Any]
AnyDType: TypeAlias = np.dtype[Any]
State: TypeAlias = dict[str, Any]
Saved: TypeAlias = Mapping[str, Any]
Float64: TypeAlias = NDArray[np.float64]
Int64: TypeAlias = NDArray[np.int64]
