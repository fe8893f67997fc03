"""A window's tables tell the distances of residuals at every centre."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.windows import window_of


@pytest.mark.parametrize("vectors", [False, True])
@given(
    seed=st.integers(0, 2**32),
    first=st.floats(-3.0, 3.0),
    second=st.floats(-3.0, 3.0),
    scale=st.sampled_from([1e-200, 1.0, 1e200]),
)
@settings(max_examples=20)
def test_distances_at_another_centre_are_those_of_the_vectors(
    vectors: bool, seed: int, first: float, second: float, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    x, g = rng.normal(size=(2, 5, 4))
    window = window_of(x, g, first, vectors=vectors)
    if not vectors:
        window.tables[::2] *= scale
    found = window.distances(second) / (1.0 if vectors else scale)
    h = g - second * x
    expected = np.linalg.norm(h[:, None] - h, axis=2)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert window.newest == 4


def test_nothing_is_lost_at_the_centre_itself() -> None:
    x, g = np.random.default_rng(0).normal(size=(2, 5, 4))
    window = window_of(x, g, 0.5)
    np.testing.assert_array_equal(window.distances(0.5), window.residuals)
    with pytest.raises(ValueError, match="too many coordinates"):
        window.coordinates(0.5)
