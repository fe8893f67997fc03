"""COCO under Optax: a hundred runs at once, by one vmap.

Logistic regression on breast_cancer, one example a gradient: SGD at two rates, each with and
without COCO, on the same examples in the same order, so that one step is one oracle call for all.

    python examples/optax_logistic.py --output optax_logistic.png

The curves are means over the runs of the loss on all data, the bands one standard error. The
script compares the second half of the runs and says what came out, gain or not.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer

from coco_denoiser.optax import coco_denoise

WINDOW, EVERY = 8, 10
TOLERANCE = 1e-3  # relative gap: far below the noise of one example, and a third less to compute


def problem() -> tuple[jax.Array, jax.Array, float]:
    """Return features with the intercept's column, labels -1 and +1, and the largest curvature."""
    data = load_breast_cancer()
    spread = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    A = np.concatenate([spread, np.ones((len(spread), 1))], axis=1)
    L = float(np.linalg.norm(A, 2) ** 2) / (4 * len(A))
    return jnp.asarray(A, jnp.float32), jnp.asarray(2.0 * data.target - 1.0, jnp.float32), L


def runs(
    tx: optax.GradientTransformation, A: jax.Array, b: jax.Array, steps: int
) -> Callable[[jax.Array], jax.Array]:
    """Return a compiled function of keys, one per run: losses (runs, points) on all data."""

    def loss(x: jax.Array, A: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.mean(jax.nn.softplus(-b * (A @ x)))

    def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
        x, state = carry
        example = jax.random.randint(key, (1,), 0, len(A))
        updates, state = tx.update(jax.grad(loss)(x, A[example], b[example]), state, x)
        return (optax.apply_updates(x, updates), state), None

    def some_steps(carry: Any, keys: jax.Array) -> tuple[Any, jax.Array]:
        before = loss(carry[0], A, b)
        return jax.lax.scan(step, carry, keys)[0], before

    def one(key: jax.Array) -> jax.Array:
        x = jnp.zeros(A.shape[1])
        keys = jax.random.split(key, (steps // EVERY, EVERY))
        (x, _), losses = jax.lax.scan(some_steps, (x, tx.init(x)), keys)
        return jnp.append(losses, loss(x, A, b))

    return jax.jit(jax.vmap(one))


def verdict(plain: np.ndarray, coco: np.ndarray) -> str:
    """Compare the second half of the runs, (runs, points) each, run by run."""
    last = max(1, plain.shape[1] // 2)
    before, after = plain[:, -last:].mean(axis=1), coco[:, -last:].mean(axis=1)
    gain = before - after
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    word = "no gain beyond the noise"
    if abs(gain.mean()) > 2 * error:
        word = "a gain" if gain.mean() > 0 else "a loss: COCO does harm here"
    return (
        f"{before.mean():.4f} without, {after.mean():.4f} with COCO "
        f"(difference {gain.mean():.4f} +- {error:.4f}): {word}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print what came out, draw the curves."""
    parser = argparse.ArgumentParser(description="COCO under SGD, many runs at once.")
    parser.add_argument("--output", type=Path, default=Path("optax_logistic.png"))
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args(arguments)
    A, b, L = problem()
    keys = jax.random.split(jax.random.key(0), options.runs)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for colour, (name, inner) in enumerate(
        {"SGD, 1/L": optax.sgd(1.0 / L), "SGD, 0.3/L": optax.sgd(0.3 / L)}.items()
    ):
        curves = {}
        for coco in (False, True):
            tx = optax.chain(coco_denoise(L, WINDOW, tol=TOLERANCE), inner) if coco else inner
            start = time.perf_counter()
            losses = np.asarray(runs(tx, A, b, options.steps)(keys), dtype=np.float64)
            seconds = time.perf_counter() - start
            label = f"{name} with COCO" if coco else name
            print(f"{label}: {options.runs} runs in {seconds:.1f} s")  # noqa: T201
            curves[coco] = losses
            mean = losses.mean(axis=0)
            error = losses.std(axis=0, ddof=1) / np.sqrt(len(losses))
            calls = EVERY * np.arange(losses.shape[1])
            style = "-" if coco else ":"
            axes.semilogy(calls, mean, style, color=f"C{colour}", label=label)
            axes.fill_between(calls, mean - error, mean + error, color=f"C{colour}", alpha=0.2)
        print(f"  {name}: {verdict(curves[False], curves[True])}")  # noqa: T201
    axes.set(
        title=f"breast_cancer, logistic: mean and standard error of {options.runs} runs",
        xlabel="oracle calls (examples)",
        ylabel="loss on all data",
    )
    axes.legend()
    figure.savefig(options.output, dpi=150)
    print(f"curves: {options.output}")  # noqa: T201


if __name__ == "__main__":
    main()
