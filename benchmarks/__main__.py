"""Run a benchmark: `python -m benchmarks NAME`."""

import os
import sys
from importlib import import_module

# One thread, before anything starts a thread pool: small problems only get slower with more.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

BENCHMARKS = {
    "solvers": "the exact method, solve() and Denoiser against Clarabel, CVXPY and NumPy",
    "stream": "a step of Denoiser and a call of solve() against Clarabel on the same windows",
    "plane": "few dimensions, hard windows included: fourclass, quadratics and the fuzz's families",
    "growing": "Denoiser(window=None) over 500 steps",
    "large-windows": "both exact methods on 64 to 2000 points: time and memory",
    "logistic-step": "one step of logistic regression against a dense FDPG",
    "fold-step": "a window of two that folds against reading its vectors",
    "torch-step": "a CocoOptimizer step against reading its window",
    "torch-fold-step": "a CocoOptimizer step with window=2 that folds against reading its vectors",
    "torch-adam": "Adam behind CocoOptimizer with a known L, against Adam alone",
    "optax-step": "a jitted coco_denoise step, and a thousand trajectories under vmap",
    "minimize": "minimize() untuned against SGD's tail average at its best step",
    "equal-time": "COCO before a projection against baselines in the same time",
    "publish": "all of the above, into the page of the site",
}


def main(arguments: list[str]) -> int:
    """Run the benchmark that is named, or list them all."""
    if len(arguments) != 1 or arguments[0] not in BENCHMARKS:
        print("usage: python -m benchmarks NAME, where NAME is one of")
        for name, what in BENCHMARKS.items():
            print(f"  {name:16s} {what}")
        return 2
    import_module(f"benchmarks.{arguments[0].replace('-', '_')}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
