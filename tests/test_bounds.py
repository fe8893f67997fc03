"""An index out of range in compiled code is noticed where bounds are checked, and only there.

Numba reads `NUMBA_BOUNDSCHECK` when it compiles; what it finds in its cache stays unchecked. So
`.ci/run bounds` sets it together with an empty cache folder, and this test is part of it.
"""

import os

import numpy as np
import pytest

from coco_denoiser._jit import kernel
from coco_denoiser.typing import Array


@kernel
def _entry(values: Array, index: int) -> float:
    return float(values[index])


def test_a_planted_index_out_of_range_fails_where_bounds_are_checked() -> None:
    whole = np.arange(8.0)
    part = whole[:3]  # what lies behind it is ours, so that reading it harms nobody
    if os.environ.get("NUMBA_BOUNDSCHECK") == "1":
        with pytest.raises(IndexError):
            _entry(part, 5)
    else:
        assert _entry(part, 5) == whole[5]
