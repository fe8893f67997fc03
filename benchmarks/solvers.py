"""The exact method, solve() and Denoiser, as ratios against peers in the same run."""

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import coco_denoiser as coco
from benchmarks import peers
from benchmarks.measure import RESULTS, duration, median_seconds, save, table
from coco_denoiser import solvers
from coco_denoiser.problem import Problem, from_observations
from coco_denoiser.typing import Array, Float64

# K, d, windows, and how many of them Clarabel solves, which is slow.
KERNELS = [
    (4, 10, 40, 40),
    (8, 10, 40, 40),
    (16, 10, 40, 40),
    (16, 112, 20, 4),
    (32, 10, 20, 6),
    (64, 10, 20, 2),
]
LARGE = (256, 1000)
DIMENSIONS = (10**4, 10**5, 10**6, 10**7)


def windows(K: int, d: int, count: int) -> list[tuple[Float64, Float64]]:
    """Half of them from SGD paths with step 0.7/L, half from a box, all with noise 10."""
    rng = np.random.default_rng([K, d])
    curvature = np.linspace(1.0, 1.0 / 3.0, d)
    found = []
    for number in range(count):
        if number % 2:
            points = rng.uniform(-10.0, 10.0, (K, d))
            gradients = points * curvature + 10.0 * rng.normal(size=(K, d))
        else:
            skip = int(rng.integers(0, 30))
            points, gradients = np.empty((skip + K, d)), np.empty((skip + K, d))
            x = np.full(d, 100.0)
            for k in range(skip + K):
                points[k], gradients[k] = x, x * curvature + 10.0 * rng.normal(size=d)
                x = x - 0.7 * gradients[k]
            points, gradients = points[skip:], gradients[skip:]
        found.append((points, gradients))
    return found


def cold(problem: Problem) -> object:
    """Run the kernel of Newton's method by itself, to a gap of 1e-9."""
    return solvers.solve(problem, method="newton")


def kernels() -> list[dict[str, Any]]:
    """Cold start, relative gap 1e-9, against Clarabel's solve time at its default tolerance."""
    rows = []
    for K, d, count, peer_count in KERNELS:
        times, default, one_thread, iterations, active, worst = [], [], [], [], [], 0.0
        for number, (points, gradients) in enumerate(windows(K, d, count)):
            problem, _ = from_observations(points, gradients, L=1.0, mu=0.0, variances=np.ones(K))
            times.append(median_seconds(partial(cold, problem), 5))
            solution = coco.solve(points, gradients, L=1.0, method="newton")
            worst = max(worst, solution.gap)
            iterations.append(solution.iterations)
            pulled = np.triu(solution.multipliers, 1)
            active.append(np.mean(pulled[np.triu_indices(K, 1)] > 1e-6 * pulled.max()))
            if number < peer_count:
                default.append(peers.clarabel_seconds(points, gradients, one_thread=False))
                one_thread.append(peers.clarabel_seconds(points, gradients, one_thread=True))
        rows.append(
            {
                "K": K,
                "d": d,
                "windows": count,
                "seconds": float(np.median(times)),
                "clarabel_default": float(np.median(default)),
                "clarabel_one_thread": float(np.median(one_thread)),
                "iterations": float(np.mean(iterations)),
                "active": float(np.mean(active)),
                "worst_gap": worst,
            }
        )
        print(f"  K={K} d={d} done", file=sys.stderr)
    return rows


def large() -> list[dict[str, Any]]:
    """Windows that general solvers do not try: exact, once each."""
    rows = []
    for K in LARGE:
        points, gradients = windows(K, 10, 2)[1]
        start = time.perf_counter()
        solution = coco.solve(points, gradients, L=1.0)
        seconds = time.perf_counter() - start
        pulled = solution.multipliers[np.triu_indices(K, 1)]
        rows.append(
            {
                "K": K,
                "d": 10,
                "seconds": seconds,
                "iterations": solution.iterations,
                "active": float(np.mean(pulled > 1e-6 * pulled.max())),
                "gap": solution.gap,
                "method": solution.method,
            }
        )
        print(f"  K={K} done", file=sys.stderr)
    return rows


def from_python() -> dict[str, float]:
    """solve() and CVXPY end to end, at K=8, d=10."""
    every = windows(8, 10, 40)
    solve = [median_seconds(partial(coco.solve, x, g, L=1.0), 5) for x, g in every]
    peer = [peers.clarabel_seconds(x, g, one_thread=True) for x, g in every]
    convex = [median_seconds(partial(peers.cvxpy_denoise, x, g), 1) for x, g in every[:20]]
    return {
        "solve": float(np.median(solve)),
        "clarabel": float(np.median(peer)),
        "cvxpy": float(np.median(convex)),
    }


def small_step() -> dict[str, float]:
    """A Denoiser step at K=2, d=10, over an empty call with the same two arrays."""
    rng = np.random.default_rng(0)
    points, gradients = rng.normal(size=(50, 10)), 10.0 * rng.normal(size=(50, 10))

    def empty(point: Float64, gradient: Float64) -> tuple[Float64, Float64]:
        return point, gradient

    def seconds(function: Callable[[Float64, Float64], object]) -> float:
        def loop() -> None:
            for x, g in zip(points, gradients, strict=True):
                function(x, g)

        return median_seconds(loop, 200) / len(points)

    times = {f"K={K}": seconds(coco.Denoiser(L=1.0, window=K)) for K in (2, 4, 8, 16)}
    return {"empty": seconds(empty), **times}


def _step(denoiser: coco.Denoiser, turn: Iterator[tuple[Float64, Float64]]) -> None:
    denoiser(*next(turn))


def _read(rings: Iterable[Array]) -> None:
    for ring in rings:
        ring.sum()


def long_step() -> list[dict[str, float]]:
    """A Denoiser step at K=8 against NumPy sums over its window: 3·K·d numbers."""
    K: int = 8
    rows: list[dict[str, float]] = []
    for d in DIMENSIONS:
        rng = np.random.default_rng(0)
        points, gradients = rng.normal(size=(K + 1, d)), 10.0 * rng.normal(size=(K + 1, d))
        denoiser = coco.Denoiser(L=1.0, window=K)
        for x, g in zip(points, gradients, strict=True):
            denoiser(x, g)
        turn = cycle(zip(points, gradients, strict=True))
        ring = denoiser._stream.window  # noqa: SLF001
        rings: Any = ring.points, ring.residuals, ring.residuals
        repeat = max(5, min(100, 10**7 // d))
        step = median_seconds(partial(_step, denoiser, turn), repeat)
        read = median_seconds(partial(_read, rings), repeat)
        rows.append({"d": d, "step": step, "read": read})
    return rows


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fresh_processes() -> dict[str, float]:
    """CPU time of a new process: import NumPy, import us, import and one solve; and that solve."""
    ours = "import numpy as np, coco_denoiser as coco\n"
    solve = (
        ours + "import time\n"
        "x = np.arange(24.0).reshape(8, 3) % 7\n"
        "start = time.perf_counter()\n"
        "coco.solve(x, 10 * np.cos(x), L=1.0)\n"
        "print(time.perf_counter() - start)\n"
    )

    def run(program: str) -> tuple[float, str]:
        before = _cpu_of_children()
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        return _cpu_of_children() - before, done.stdout.decode()

    found = {
        name: [run(program) for _ in range(7)]
        for name, program in (("numpy", "import numpy"), ("import", ours), ("solve", solve))
    }
    cpu = {name: float(np.median([cpu for cpu, _ in runs])) for name, runs in found.items()}
    return {**cpu, "first": float(np.median([float(printed) for _, printed in found["solve"]]))}


def report(results: dict[str, Any]) -> str:
    """The table."""
    rows = []

    def compare(what: str, ours: float, peer: float, *, slower: bool = False) -> None:
        ratio = f"{ours / peer:.2f}x" if slower else f"{peer / ours:.0f}x"
        rows.append([what, duration(ours), duration(peer), ratio])

    for row in results["kernels"]:
        for peer in ("clarabel_default", "clarabel_one_thread"):
            what = f"exact, K={row['K']}, d={row['d']}, vs {peer.replace('_', ' ')}"
            compare(what, row["seconds"], row[peer])
    call, step = results["from_python"], results["small_step"]
    compare("solve(), K=8, d=10, vs Clarabel", call["solve"], call["clarabel"])
    compare("solve(), K=8, d=10, vs CVXPY", call["solve"], call["cvxpy"])
    rows.append(["Denoiser step, K=2, d=10", duration(step["K=2"]), "", ""])
    for row in results["long_step"]:
        what = f"Denoiser step, K=8, d=10^{np.log10(row['d']):.0f}, vs reading its window"
        compare(what, row["step"], row["read"], slower=True)
    fresh = results["fresh_processes"]
    for what, key in (
        ("a new process that imports NumPy, CPU time", "numpy"),
        ("the same and coco_denoiser", "import"),
        ("the same and one solve()", "solve"),
        ("that first solve() alone, K=8, d=3", "first"),
    ):
        rows.append([what, duration(fresh[key]), "", ""])
    for row in results["large"]:
        what = f"exact, K={row['K']}: {row['iterations']} iterations, {row['active']:.1%} active"
        rows.append([what, duration(row["seconds"]), row["method"], f"gap {row['gap']:.0e}"])
    return table(["what", "ours", "peer", "ratio"], rows)


def plot(results: dict[str, Any]) -> None:
    """Time against K, ours and the peers'; and the cost of a long step against d."""
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows = [row for row in results["kernels"] if row["d"] == 10]
    K = [row["K"] for row in rows]
    more = results["large"]
    left.loglog(
        K + [row["K"] for row in more],
        [row["seconds"] for row in rows] + [row["seconds"] for row in more],
        "o-",
        color="black",
        label="exact",
    )
    for key, style, label in (
        ("clarabel_one_thread", "s--", "Clarabel, one thread"),
        ("clarabel_default", "^:", "Clarabel, default"),
    ):
        left.loglog(K, [row[key] for row in rows], style, color="tab:blue", label=label)
    left.set(xlabel="points in the window, K (d = 10)", ylabel="seconds to solve")
    left.legend(frameon=False)
    left.grid(alpha=0.3)
    d = [row["d"] for row in results["long_step"]]
    right.loglog(
        d,
        [row["step"] for row in results["long_step"]],
        "o-",
        color="black",
        label="Denoiser step, K=8",
    )
    right.loglog(
        d,
        [row["read"] for row in results["long_step"]],
        "s--",
        color="tab:blue",
        label="reading the window once (NumPy)",
    )
    right.set(xlabel="dimension, d", ylabel="seconds")
    right.legend(frameon=False)
    right.grid(alpha=0.3)
    figure.savefig(RESULTS / "solvers.png", dpi=150)


def main() -> None:
    """Measure, save, print and draw."""
    results: dict[str, Any] = {}
    for part in (fresh_processes, small_step, from_python, long_step, kernels, large):
        print(f"{part.__name__} …", file=sys.stderr)
        results[part.__name__] = part()
    path = save("solvers", results)
    print(report(results))
    plot(results)
    print(f"\nraw numbers: {path}, picture: {path.with_suffix('.png')}")
