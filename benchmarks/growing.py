"""Denoiser(window=None): every step has one more observation."""

import time

import coco_denoiser as coco
from benchmarks.measure import duration, save, table
from benchmarks.stream import stream

STEPS, EVERY = 500, 100


def main() -> None:
    """Measure, save and print."""
    points, gradients = stream(10, STEPS, "path")
    denoiser = coco.Denoiser(L=1.0, window=None)
    rows, start = [], time.process_time()
    for k, (x, g) in enumerate(zip(points, gradients, strict=True), start=1):
        denoiser(x, g)
        if k % EVERY == 0:
            seconds = time.process_time() - start
            rows.append({"steps": k, "seconds": seconds})
    path = save("growing", rows)
    lines = [
        [f"window=None, the first {row['steps']} steps, d=10", duration(row["seconds"])]
        for row in rows
    ]
    print(table(["what", "ours"], lines))
    print(f"\nCPU time, one thread. raw numbers: {path}")
