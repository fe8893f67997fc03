"""A window's tables tell the distances of residuals at every centre."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_denoiser.models import Snapshot
from coco_denoiser.typing import Float64


def snapshot(x: Float64, g: Float64, centre: float, *, vectors: bool) -> Snapshot:
    """Return the window of these observations, oldest first."""
    h = g - centre * x
    dx, dh = x[:, None] - x, h[:, None] - h
    points, residuals = np.linalg.norm(dx, axis=2), np.linalg.norm(dh, axis=2)
    product = points * residuals
    cosines = np.einsum("ijk,ijk->ij", dx, dh) / np.where(product > 0.0, product, 1.0)
    return Snapshot(
        points,
        residuals,
        cosines,
        np.ones(len(x)),
        np.arange(len(x)),
        x.shape[1],
        centre,
        (x, h) if vectors else None,
    )


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
    window = snapshot(x, g, first, vectors=vectors)
    if not vectors:
        tables = (scale * window.points, scale * window.residuals, window.cosines)
        window = Snapshot(*tables, window.variances, window.order, 4, first)
    found = window.distances(second) / (1.0 if vectors else scale)
    h = g - second * x
    expected = np.linalg.norm(h[:, None] - h, axis=2)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert window.newest == 4


def test_nothing_is_lost_at_the_centre_itself() -> None:
    x, g = np.random.default_rng(0).normal(size=(2, 5, 4))
    window = snapshot(x, g, 0.5, vectors=False)
    assert window.distances(0.5) is window.residuals
    with pytest.raises(ValueError, match="too many coordinates"):
        window.coordinates(0.5)
