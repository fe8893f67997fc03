"""Two points: the batch of pairs, the solver and the stream say the same."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coco_denoiser.paper.pairs import denoise_pairs
from tests.families import Case


@given(seed=st.integers(0, 2**32), L=st.floats(0.1, 10))
def test_pairs_are_solved_as_windows_of_two(seed: int, L: float) -> None:
    rng = np.random.default_rng(seed)
    points, gradients = rng.normal(size=(3, 4, 2, 5)), 3.0 * rng.normal(size=(3, 4, 2, 5))
    theta = denoise_pairs(points, gradients, L=L)
    for index in np.ndindex(3, 4):
        one = Case(points[index], gradients[index], L=L)
        np.testing.assert_allclose(theta[index], one.solve().gradients, atol=1e-12)


def test_one_pair_of_points_serves_many_gradients() -> None:
    rng = np.random.default_rng(0)
    points, gradients = rng.normal(size=(2, 3)), rng.normal(size=(7, 2, 3))
    theta = denoise_pairs(points, gradients, L=1.0)
    repeated = denoise_pairs(np.tile(points, (7, 1, 1)), gradients, L=1.0)
    np.testing.assert_array_equal(theta, repeated)
    one = denoise_pairs(np.zeros((2, 3)), gradients, L=1.0)
    np.testing.assert_allclose(one, gradients.mean(axis=1, keepdims=True).repeat(2, 1), rtol=1e-9)
