"""Private training: what denoising adds to an average of the weights.

Logistic regression on breast_cancer by DP-SGD: at every step the gradients of 32 examples are
clipped to norm 1 and summed, Gaussian noise of standard deviation 2 is added, and the sum is
divided by 32. COCO sees what comes out, so it costs no privacy. Printed is the loss on all data,
of the last weights and of the average over the second half of the run, each at the best of five
learning rates: mean and standard error over the seeds.

    python examples/private_logistic.py
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from coco_denoiser import Denoiser, Gaussian

BATCH, NOISE, CLIP = 32, 2.0, 1.0
RATES = (0.1, 0.3, 1.0, 3.0, 10.0)  # over L
Float64 = NDArray[np.float64]


def data() -> tuple[Float64, float]:
    """Return features with a column of ones, times labels of -1 and 1, and their loss's L."""
    table = load_breast_cancer()
    x = (table.data - table.data.mean(0)) / table.data.std(0)
    A = np.column_stack([x, np.ones(len(x))])
    L = float(np.linalg.norm(A, 2) ** 2) / (4 * len(A))
    return A * np.where(table.target, 1.0, -1.0)[:, None], L


def private_gradient(w: Float64, A: Float64, rng: np.random.Generator) -> Float64:
    """Return the mean of clipped gradients of a batch, with noise."""
    batch = A[rng.choice(len(A), BATCH, replace=False)]
    each = -batch / (1.0 + np.exp(batch @ w))[:, None]
    each /= np.maximum(np.linalg.norm(each, axis=1, keepdims=True) / CLIP, 1.0)
    noisy: Float64 = each.sum(0) + NOISE * CLIP * rng.standard_normal(w.size)
    return noisy / BATCH


def train(denoiser: Denoiser | None, rate: float, steps: int, seed: int) -> tuple[float, float]:
    """Return the loss of the last weights, and of their average over the second half."""
    A, L = data()
    rng = np.random.default_rng(seed)
    w = np.zeros(A.shape[1])
    path = []
    for _ in range(steps):
        g = private_gradient(w, A, rng)
        w = w - rate / L * (g if denoiser is None else denoiser(w, g))
        path.append(w)
    average = np.mean(path[steps // 2 :], axis=0)
    last, mean = (float(np.logaddexp(0.0, -A @ v).mean()) for v in (w, average))
    return last, mean


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and print a table."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args(arguments)
    L = data()[1]
    kinds: dict[str, Callable[[], Denoiser | None]] = {
        "DP-SGD": lambda: None,
        "COCO, window 8": lambda: Denoiser(L, window=8),
        "COCO, window 32": lambda: Denoiser(L, window=32),
        "Gaussian, window 32": lambda: Denoiser(model=Gaussian(), window=32),
    }
    print(f"{'':20s} last weights               average of the second half", flush=True)  # noqa: T201
    for name, make in kinds.items():
        runs = np.array(
            [
                [train(make(), rate, options.steps, seed) for seed in range(options.seeds)]
                for rate in RATES
            ]
        )
        cells = []
        for kind in runs.transpose(2, 0, 1):
            at = kind.mean(1).argmin()
            error = kind[at].std() / np.sqrt(max(options.seeds - 1, 1))
            cells.append(f"{kind[at].mean():.4f} ± {error:.4f} at {RATES[at]:4g}/L")
        print(f"{name:20s} {'   '.join(cells)}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
