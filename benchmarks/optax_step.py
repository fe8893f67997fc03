"""A jitted step with COCO against the same without, and a thousand trajectories under vmap.

A step has to read the window for the new rows of the tables, and again for the weighted sum. The
yardstick for what denoising adds is the time that plain JAX reductions take to read 3 K d numbers
of it, in the same run. With K = 2 and folding, the past is one point and one gradient, and the
yardstick is to read these two and the new ones, 4 d numbers. The trajectories are the paper's
synthetic SGD with COCO_8, 32 steps each, in one compiled vmap and by the NumPy path.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

from benchmarks.measure import RESULTS, duration, save, table
from coco_denoiser import Denoiser
from coco_denoiser.optax import coco_denoise
from coco_denoiser.paper.optimizers import SGD
from coco_denoiser.paper.problems import Quadratic

K = 8
NUMBERS = (10**3, 10**4, 10**5, 10**6, 10**7)
ALLOWED = 2.0  # times the reading
RUNS, STEPS, DIMENSION, NOISE = 1000, 32, 10, 10.0


def seconds(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = jax.block_until_ready(function(*arguments))  # type: ignore[no-untyped-call]
    return time.perf_counter() - start, result


def compiled_step(tx: optax.GradientTransformation) -> Any:
    def step(params: jax.Array, state: Any, gradient: jax.Array) -> Any:
        updates, state = tx.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    return jax.jit(step, donate_argnums=(0, 1))


def measure(d: int) -> dict[str, float]:
    """Return the least times over rounds in which everything is timed once, one after the other.

    What a busy machine adds is never negative, so the least times are the ones to compare.
    """
    gradients = [jax.random.normal(jax.random.key(n), (d,)) for n in range(4)]
    sgd = optax.sgd(1e-3)
    kinds = {
        "plain": sgd,
        "coco": optax.chain(coco_denoise(1.0, K), sgd),
        "fold": optax.chain(coco_denoise(1.0, 2, forget="fold"), sgd),
    }
    carries = {}
    for name, tx in kinds.items():
        params = jax.random.normal(jax.random.key(9), (d,))
        carries[name] = (params, tx.init(params))
    steps = {name: compiled_step(tx) for name, tx in kinds.items()}
    read = jax.jit(lambda X, G: (X.sum(1), G.sum(1), (G - 1.0).sum(1)))
    read_four = jax.jit(lambda *vectors: [v.sum() for v in vectors])

    rounds = []
    for number in range(2 * K + max(7, min(100, 10**7 // d))):
        g = gradients[number % 4]
        spent = []
        for name, step in steps.items():
            t, carries[name] = seconds(step, *carries[name], g)
            spent.append(t)
        window = carries["coco"][1][0]
        spent.append(seconds(read, window.points, window.gradients)[0])
        past = carries["fold"][1][0]
        four = (past.points, past.gradients, carries["fold"][0], g)
        spent.append(seconds(read_four, *four)[0])
        if number >= 2 * K:
            rounds.append(spent)
    plain, coco, fold, reading, reading_four = (float(t) for t in np.min(rounds, axis=0))
    return {
        "d": d,
        "plain": plain,
        "extra": coco - plain,
        "reading": reading,
        "extra / reading": (coco - plain) / reading,
        "fold extra": fold - plain,
        "fold reading": reading_four,
        "fold extra / reading": (fold - plain) / reading_four,
    }


def trajectories() -> dict[str, float]:
    """Time RUNS trajectories by one compiled vmap, and some of them by the NumPy path."""
    tx = optax.chain(coco_denoise(1.0, K), optax.sgd(1.0))
    eigenvalues = jnp.linspace(1.0, 1 / 3, DIMENSION)

    def one(key: jax.Array) -> jax.Array:
        def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            x, state = carry
            g = eigenvalues * x + NOISE * jax.random.normal(key, x.shape)
            updates, state = tx.update(g, state, x)
            return (optax.apply_updates(x, updates), state), jnp.linalg.norm(x)

        x = jnp.full(DIMENSION, 100.0)
        return jax.lax.scan(step, (x, tx.init(x)), jax.random.split(key, STEPS))[1]

    many = jax.jit(jax.vmap(one))
    keys = jax.random.split(jax.random.key(0), RUNS)
    first, _ = seconds(many, keys)
    again = [seconds(many, keys) for _ in range(3)]
    problem = Quadratic.spaced(DIMENSION, noise_std=NOISE)
    errors = []

    def by_numpy(runs: int) -> None:
        for seed in range(runs):
            rng = np.random.default_rng(seed)
            optimizer = SGD(1.0, denoiser=Denoiser(1.0, window=K))
            x = np.full(DIMENSION, 100.0)
            for _ in range(STEPS):
                x = optimizer.advance(problem, x, rng)
            errors.append(float(np.linalg.norm(x)))

    by_numpy(2)
    fewer = RUNS // 5
    start = time.perf_counter()
    by_numpy(fewer)
    numpy_seconds = (time.perf_counter() - start) * RUNS / fewer
    jax_seconds = float(np.median([t for t, _ in again]))
    return {
        "runs": RUNS,
        "compilation": first - jax_seconds,
        "jax": jax_seconds,
        "numpy": numpy_seconds,
        "numpy / jax": numpy_seconds / jax_seconds,
        "last error, jax": float(again[0][1][:, -1].mean()),
        "last error, numpy": float(np.mean(errors)),
    }


def draw(results: list[dict[str, float]]) -> Figure:
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes: Any = figure.add_subplot()
    d = [row["d"] for row in results]
    # Told apart by marker and dash as well, for those who confuse colours, and in print.
    for name, label, style in (
        ("plain", "plain step", "C0^-."),
        ("extra", "what COCO adds", "C1o-"),
        ("reading", "reading 3 K d numbers", "k:"),
    ):
        axes.loglog(d, [row[name] for row in results], style, label=label)
    axes.loglog(d, [ALLOWED * row["reading"] for row in results], "k--", label="2 x reading")
    axes.set(xlabel="parameters d", ylabel="seconds", title=f"What denoising adds to a step, K={K}")
    axes.legend()
    return figure


def main() -> None:
    results = [measure(d) for d in NUMBERS]
    together = trajectories()
    save("optax-step", {"rows": results, "trajectories": together})
    head = ("d", "plain step", "extra", "reading 3Kd", "extra/reading")
    rows = [
        (
            f"{row['d']:.0e}",
            *(duration(row[name]) for name in ("plain", "extra", "reading")),
            f"{row['extra / reading']:.2f}",
        )
        for row in results
    ]
    print(table(head, rows))
    for row in results:
        print(
            f"K = 2, folding, d = {row['d']:.0e}: {duration(row['fold extra'])} extra, "
            f"{duration(row['fold reading'])} for reading 4d: {row['fold extra / reading']:.2f}"
        )
    print(
        f"{RUNS} trajectories of {STEPS} steps: {duration(together['jax'])} by one vmap "
        f"(after {duration(together['compilation'])} of compilation), "
        f"{duration(together['numpy'])} by NumPy: ratio {together['numpy / jax']:.2f}"
    )
    path = RESULTS / "optax-step.png"
    draw(results).savefig(path, dpi=150)
    print(f"plot: {path}")
