"""Parameters over several devices: the same answer, and only O(K) numbers between devices."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("jax", reason="jax is not installed: pip install -e '.[test]'")
K = 6
PROGRAM = """
import json, re
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from coco_denoiser.optax import coco_denoise

tx = optax.chain(coco_denoise(1.0, {K}), optax.sgd(0.2))
params = {{"w": jnp.linspace(-3, 4, 1600).reshape(40, 40), "v": jnp.ones(800), "b": jnp.ones(7)}}
specs = {{"w": P("x"), "v": P("x"), "b": P()}}

def step(params, state, seed):
    u, state = tx.update(gradient(params, seed), state, params)
    return optax.apply_updates(params, u), state

def gradient(params, seed):
    return jax.tree.map(lambda p: 0.5 * p + 2 * jnp.sin(p + 37 * seed), params)

alone, state = params, tx.init(params)
for seed in range(10):
    alone, state = jax.jit(step)(alone, state, seed)
norm = lambda tree: float(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(tree)) ** 0.5)

def sharded(kind):
    mesh = jax.make_mesh((4,), ("x",), axis_types=(kind,))
    with jax.set_mesh(mesh):
        spread = jax.tree.map(
            lambda p, s: jax.device_put(p, NamedSharding(mesh, s)), params, specs
        )
        state = tx.init(spread)
        program = jax.jit(step).lower(spread, state, 0).compile()
        for seed in range(10):
            spread, state = program(spread, state, seed)
    sizes = []
    for line in program.as_text().splitlines():
        found = re.search(
            r"= (.*?) (?:all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)"
            r"(?:-start)?\\(", line)
        if found:
            for shape in re.findall(r"[a-z]+[0-9]*\\[([0-9,]*)\\]", found[1]):
                sizes.append(int(np.prod([int(n) for n in shape.split(",") if n])))
    gap = norm(jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), alone, spread))
    window = state[0].points["w"].sharding
    return {{
        "difference": gap / norm(alone),
        "sizes": sizes,
        "window": window.shard_shape((({K}), 40, 40)),
    }}

print(json.dumps({{kind: sharded(getattr(AxisType, kind)) for kind in ("Auto", "Explicit")}}))
"""


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """What both kinds of sharding came to, in one process with four devices."""
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(K=K)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    both: dict[str, Any] = json.loads(done.stdout)
    return both


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_shards_give_the_same_answer_and_exchange_few_numbers(
    kind: str, results: dict[str, Any]
) -> None:
    result = results[kind]
    assert result["difference"] < 1e-3
    assert result["window"] == [K, 10, 40]
    assert result["sizes"]
    # One row of each table from each of the four devices, a leaf at most.
    assert max(result["sizes"]) <= 4 * 3 * K
    assert sum(result["sizes"]) <= 2 * (4 * 3 * K) + 16
