"""Several devices: jit over sharded parameters, shard_map and pmap, in a process with two."""

import json
from typing import Any

import pytest

from tests.optax.streams import printed_with_devices

K = 3
PROGRAM = """
import json, re
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from coco_denoiser import Denoiser, Gaussian
from coco_denoiser.optax import coco_denoise, gaussian_denoise
from tests.optax.streams import noisy_gradient

K, STEPS, LONG, KINDS = {K}, 2 * {K}, 1 << 19, ("Auto", "Explicit")
def chain(L):
    denoised = gaussian_denoise(window=K) if L is None else coco_denoise(L, K)
    return optax.chain(denoised, optax.sgd(0.2))

draw = np.random.default_rng(0)
params = {{"w": 10 + draw.standard_normal((LONG // 64, 64)), "v": np.ones(64), "b": np.ones(7)}}
params = jax.tree.map(lambda p: jnp.asarray(p, jnp.float32), params)
specs = {{"w": P("x"), "v": P("x"), "b": P()}}

def step(params, state, seed):
    u, state = tx.update(noisy_gradient(params, seed), state, params)
    return optax.apply_updates(params, u), state

def averaged(params, state, seed):  # as in data-parallel training
    g = jax.lax.pmean(noisy_gradient(params, seed), "x")
    u, state = tx.update(g, state, params)
    return optax.apply_updates(params, u), state

def run(step, params, state):
    for seed in range(STEPS):
        # More than one step under way exhausts the threads of a CPU that plays several devices.
        params, state = jax.block_until_ready(step(params, state, seed))
    return params, state

def by_numpy(params, L=1.0):
    denoiser = Denoiser(L, window=K, model=Gaussian() if L is None else None)
    tree = jax.tree.structure(params)
    x = [np.asarray(p, dtype=float) for p in jax.tree.leaves(params)]
    ends = np.cumsum([p.size for p in x])[:-1]
    for seed in range(STEPS):
        g = [0.5 * p + 2 * np.sin(p + 37 * seed) for p in x]
        flat = denoiser(*(np.concatenate([p.ravel() for p in v]) for v in (x, g)))
        u = np.split(flat, ends)
        x = [p - 0.2 * v.reshape(p.shape) for p, v in zip(x, u)]
    return jax.tree.unflatten(tree, x)

def difference(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(np.max(np.abs(np.asarray(x) - np.asarray(y)))) for x, y in pairs)

def table_error(path, window):
    # Of ||dx||, relative to the same in float64 by NumPy.
    flat = [np.concatenate([np.ravel(leaf).astype(float) for leaf in jax.tree.leaves(p)])
            for p in path[-K:]]
    slots = [(int(window.next) + n) % K for n in range(K)]
    found = window.tables[0]
    return max(abs(found[slots[i], slots[j]] / np.linalg.norm(flat[i] - flat[j]) - 1)
               for i in range(K) for j in range(i))

def collectives(program):
    found = []
    for line in program.as_text().splitlines():
        match = re.search(
            r"= (.*?) (?:all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)"
            r"(?:-start)?\\(", line)
        if match:
            shapes = re.findall(r"[a-z]+[0-9]*\\[([0-9,]*)\\]", match[1])
            found.append(sum(int(np.prod([int(n) for n in s.split(",") if n])) for s in shapes))
    return found

def sharded(kind):
    mesh = jax.make_mesh((2,), ("x",), axis_types=(kind,))
    with jax.set_mesh(mesh):
        spread = jax.tree.map(
            lambda p, s: jax.device_put(p, NamedSharding(mesh, s)), params, specs
        )
        state = tx.init(spread)
        program = jax.jit(step).lower(spread, state, 0).compile()
        path = []
        def kept(p, s, seed):
            path.append(jax.tree.map(np.asarray, p))
            return program(p, s, seed)
        after, state = run(kept, spread, state)
    return {{
        "difference": difference(alone, after),
        "collectives": collectives(program),
        "window": state[0].points["w"].sharding.shard_shape((K, LONG // 64, 64)),
        "table error": float(table_error(path, state[0].window)),
    }}

def own(params):  # a model of its own on each device
    start = jax.tree.map(lambda p: p[0], params)
    advance = lambda carry, seed: (step(*carry, seed), None)
    after = jax.lax.scan(advance, (start, tx.init(start)), jnp.arange(STEPS))[0][0]
    return jax.tree.map(lambda p: p[None], after)

def mapped(L):
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
    small = {{"v": params["v"], "b": params["b"]}}
    expected = by_numpy(small, L)
    twice = lambda tree: jax.tree.map(lambda p: jnp.stack([p, p]), tree)
    replicated = jax.shard_map(averaged, mesh=mesh, in_specs=(P(), P(), P()), out_specs=(P(), P()))
    owned = jax.shard_map(own, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    return {{
        "averaged": difference(expected, run(jax.jit(replicated), small, tx.init(small))[0]),
        "own": difference(twice(expected), jax.jit(owned)(twice(small))),
    }}

found = {{}}
for name, L in (("cocoercive", 1.0), ("gaussian", None)):
    jax.clear_caches()  # what was compiled has the other model in it
    tx, alone = chain(L), by_numpy(params, L)
    found[name] = mapped(L) | {{kind: sharded(getattr(AxisType, kind)) for kind in KINDS}}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """What all of them came to, in one process."""
    found: dict[str, Any] = json.loads(printed_with_devices(2, PROGRAM.format(K=K)))
    return found


MODELS = pytest.mark.parametrize("model", ["cocoercive", "gaussian"])


@MODELS
@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_shards_give_the_same_answer_and_exchange_few_numbers(
    model: str, kind: str, results: dict[str, Any]
) -> None:
    result = results[model][kind]
    assert result["difference"] < 1e-3
    assert result["window"] == [K, (1 << 19) // 128, 64]
    # One exchange: three rows of each of the two sharded leaves.
    assert len(result["collectives"]) == 1
    assert sum(result["collectives"]) <= 2 * 3 * K
    assert result["table error"] < 1e-6  # sums over shards keep the digits of float32


@MODELS
@pytest.mark.parametrize("kind", ["averaged", "own"])
def test_mapped_over_devices_the_answer_is_the_same(
    model: str, kind: str, results: dict[str, Any]
) -> None:
    assert results[model][kind] < 1e-4
