"""Noisy gradients, trees, and processes that see several devices."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

K = 4
PARAMS = {"w": np.linspace(-2, 3, 6).reshape(2, 3), "b": np.ones(3)}


def noisy_gradient(params: Any, seed: Any) -> Any:
    """The gradient of |x|^2 / 4, and what looks like noise."""
    return jax.tree.map(lambda p: 0.5 * p + 2.0 * jnp.sin(p + 37 * seed), params)


def as_tree(dtype: Any) -> Any:
    return jax.tree.map(lambda p: jnp.asarray(p, dtype), PARAMS)


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
