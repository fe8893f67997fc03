"""The small tables of the window, against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np

from coco_denoiser.optax import coco_denoise

K, L = 3, 0.8


def test_rows_of_long_leaves_keep_the_digits_of_float32() -> None:
    rng = np.random.default_rng(0)
    shapes = {"long": (5, 40_003), "short": (7,), "complex": (2, 3001)}

    def draw(offset: float) -> dict[str, jax.Array]:
        tree = {name: offset + rng.standard_normal(shape) for name, shape in shapes.items()}
        tree["complex"] = tree["complex"] + 1j * rng.standard_normal(shapes["complex"])
        return {
            name: jnp.asarray(leaf, jnp.complex64 if np.iscomplexobj(leaf) else jnp.float32)
            for name, leaf in tree.items()
        }

    def flat(tree: dict[str, jax.Array]) -> np.ndarray:
        parts = [np.asarray(tree[name], dtype=np.complex128).ravel() for name in shapes]
        whole = np.concatenate(parts)
        return np.concatenate([whole.real, whole.imag])

    tx = coco_denoise(L, K)
    update = jax.jit(tx.update)
    points, gradients = [], []
    state = None
    for _ in range(K):
        params, g = draw(10.0), draw(0.0)
        state = tx.init(params) if state is None else state
        _, state = update(g, state, params)
        points.append(flat(params))
        gradients.append(flat(g))
    assert state is not None
    for i in range(K):
        for j in range(i):
            dx = points[i] - points[j]
            dh = gradients[i] - gradients[j] - L / 2 * dx
            size = np.linalg.norm(dx) * np.linalg.norm(dh)
            assert np.isclose(state.tables.point[i, j], dx @ dx, rtol=2e-6)
            assert np.isclose(state.tables.residual[i, j], dh @ dh, rtol=2e-6)
            assert np.isclose(state.tables.cross[i, j], dx @ dh, rtol=0.0, atol=2e-6 * size)
