"""Names for the array types that signatures speak of."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating[Any]]
Float64: TypeAlias = NDArray[np.float64]
Int64: TypeAlias = NDArray[np.int64]
