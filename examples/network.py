"""A small network: which of three ways to calm the noise of its gradients to try first.

A network with one hidden layer of 32 tanh units learns the digits of scikit-learn, 8 examples a
step, by plain SGD, with learning rates over two decades. Printed is the loss on all data, as the
mean over the seeds: of the last weights and of an exponential average of the weights, without
denoising, with COCO (L = 1 / learning rate, mu = 0, window 8), and with the Gaussian model
(window 32).

    python examples/network.py
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from coco_denoiser import Denoiser

BATCH, HIDDEN, MEMORY = 8, 32, 0.99
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
Float64 = NDArray[np.float64]
SHAPES = ((64, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,))
ENDS = np.cumsum([int(np.prod(shape)) for shape in SHAPES])


def loss_and_gradient(w: Float64, x: Float64, labels: NDArray[np.int64]) -> tuple[float, Float64]:
    """Return the cross-entropy of some digits, and its gradient."""
    A, a, B, b = (p.reshape(s) for p, s in zip(np.split(w, ENDS[:-1]), SHAPES, strict=True))
    hidden = np.tanh(x @ A + a)
    logits = hidden @ B + b
    logits -= logits.max(1, keepdims=True)
    p = np.exp(logits)
    p /= p.sum(1, keepdims=True)
    rows = np.arange(len(x))
    loss = -float(np.log(np.maximum(p[rows, labels], 1e-300)).mean())
    p[rows, labels] -= 1.0
    p /= len(x)
    back = (p @ B.T) * (1.0 - hidden**2)
    return loss, np.concatenate(
        [(x.T @ back).ravel(), back.sum(0), (hidden.T @ p).ravel(), p.sum(0)]
    )


def train(denoiser: Denoiser | None, rate: float, steps: int, seed: int) -> tuple[float, float]:
    """Return the loss of the last weights, and of an exponential average of the weights."""
    table = load_digits()
    x, labels = table.data / 8.0 - 1.0, table.target
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(ENDS[-1]) * np.repeat([0.125, 0.0, 0.18, 0.0], np.diff(ENDS, prepend=0))
    average = w
    for _ in range(steps):
        batch = rng.choice(len(x), BATCH, replace=False)
        g = loss_and_gradient(w, x[batch], labels[batch])[1]
        w = w - rate * (g if denoiser is None else denoiser(w, g))
        average = MEMORY * average + (1.0 - MEMORY) * w
    return loss_and_gradient(w, x, labels)[0], loss_and_gradient(average, x, labels)[0]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and print a table."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args(arguments)
    kinds: dict[str, Callable[[float], Denoiser | None]] = {
        "SGD": lambda _: None,
        "COCO, mu=0": lambda rate: Denoiser(1.0 / rate, window=8),
        "Gaussian": lambda _: Denoiser(model="gaussian", window=32),
    }
    rates = " ".join(f"{rate:>8g}" for rate in RATES)
    print(f"{'learning rate':26s} {rates}", flush=True)  # noqa: T201
    for name, make in kinds.items():
        runs = np.array(
            [
                [train(make(rate), rate, options.steps, seed) for seed in range(options.seeds)]
                for rate in RATES
            ]
        )
        for which, weights in enumerate(("last weights", "average")):
            means = " ".join(f"{value:8.3f}" for value in runs[:, :, which].mean(1))
            print(f"{name + ', ' + weights:26s} {means}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
