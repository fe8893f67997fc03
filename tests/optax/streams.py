"""Streams of noisy gradients, and what is compiled once for many tests.

Compilation is most of the time that these tests take. So they share `update`, one program for
each tree and precision, and `step`, with an optimizer.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from coco_denoiser.optax import coco_denoise

K, STEPS = 4, 10
PARAMS = {"w": np.linspace(-2, 3, 6).reshape(2, 3), "b": np.ones(3)}


@jax.jit
def noisy_gradient(params: Any, seed: Any) -> Any:
    """The gradient of a quadratic with curvatures from 1/3 to 1, and noise."""
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed), max(len(leaves), 1))
    return jax.tree.unflatten(
        tree,
        [
            jnp.linspace(1, 1 / 3, p.size).reshape(p.shape).astype(p.dtype) * p
            + jax.random.normal(key, p.shape, p.dtype)
            for p, key in zip(leaves, keys, strict=False)
        ],
    )


def make_step(tx: Any, **options: Any) -> Any:
    def step(params: Any, state: Any, seed: Any) -> Any:
        updates, state = tx.update(noisy_gradient(params, seed), state, params)
        return optax.apply_updates(params, updates), state

    return jax.jit(step, **options)


CHAIN = optax.chain(coco_denoise(1.0, K), optax.sgd(0.1))
step = make_step(CHAIN)


@jax.jit
def update(g: Any, state: Any, params: Any, L: Any = 1.0, mu: Any = 0.0) -> Any:
    return coco_denoise(L, K, mu=mu, tol=1e-12 if state.gap.dtype == jnp.float64 else 1e-6).update(
        g, state, params, value=1.0, anything="else"
    )


def as_tree(dtype: Any, params: Any = PARAMS) -> Any:
    return jax.tree.map(lambda p: jnp.asarray(p, dtype), params)


def run(params: Any, seeds: Any = range(STEPS)) -> Any:
    state = CHAIN.init(params)
    for seed in seeds:
        params, state = step(params, state, seed)
    return params, state


def flat(tree: Any) -> Any:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def same(a: Any, b: Any) -> bool:
    trees: list[Any] = [jax.tree.structure(a), jax.tree.structure(b)]
    return trees[0] == trees[1] and all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def printed_with_devices(count: int, program: str) -> str:
    """Return what a program prints that sees several devices: a process must, from the start."""
    flags = f"--xla_force_host_platform_device_count={count} --xla_backend_optimization_level=0"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"XLA_FLAGS": flags},
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
