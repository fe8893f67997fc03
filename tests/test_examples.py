"""What the examples compute, where no other test looks at it."""

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coco_denoiser as coco
from coco_denoiser import solvers
from coco_denoiser.torch import GradientDenoiser
from coco_denoiser.torch.passes import HOST, PASSES

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "one_function.py"


def test_a_rotation_is_co_coercive_but_has_no_potential() -> None:
    """Three points of a rotating field obey every pairwise bound; one function must turn less."""
    angle = 2.0 * np.pi * np.arange(3) / 3.0
    points = np.column_stack((np.cos(angle), np.sin(angle)))
    turned = points @ np.array([[0.0, 1.0], [-1.0, 0.0]])
    gradients = 0.5 * points + 0.5 * turned
    assert coco.solve(points, gradients, L=1.0).status is coco.Status.UNCHANGED
    # By symmetry the rotation shrinks by a factor t that solves 3/4 t^2 + sqrt(3)/2 t = 3/4.
    side, circulation = 3.0 / 4.0, np.sqrt(3.0) / 2.0
    t = (-circulation + np.sqrt(circulation**2 + 4.0 * side * side)) / (2.0 * side)
    project = runpy.run_path(str(EXAMPLE))["project"]
    theta, f = project(points, gradients, L=1.0)
    np.testing.assert_allclose(theta, 0.5 * points + 0.5 * t * turned, atol=1e-4)
    for i in range(3):
        for j in range(3):
            bend = np.sum((theta[i] - theta[j]) ** 2) / 2.0
            assert f[i] >= f[j] + theta[j] @ (points[i] - points[j]) + bend - 1e-6


def test_the_comparison_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--points", "4"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "one function: squared error" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["streaming_lasso", "portfolio", "frank_wolfe"])
def test_the_gallery_of_constraints_draws_its_figures(name: str, tmp_path: Path) -> None:
    main = runpy.run_path(str(EXAMPLE.with_name(f"{name}.py")))["main"]
    main(["--calls", "6", "--runs", "1", "--output", str(tmp_path / "figure.png")])
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_solver_of_ones_own_finds_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solvers, "METHODS", dict(solvers.METHODS))
    runpy.run_path(str(EXAMPLE.with_name("solver.py")))
    rng = np.random.default_rng(0)
    points = rng.normal(size=(5, 3))
    noisy = points * [1.0, 0.7, 0.3] + rng.normal(size=points.shape)
    model = coco.Cocoercive(1.0, method="one-pair", tol=1e-6)
    found = coco.solve(points, noisy, model=model)
    assert found.status.success
    np.testing.assert_allclose(
        found.gradients, coco.solve(points, noisy, L=1.0).gradients, atol=1e-3
    )


def test_a_model_of_ones_own_averages_what_is_near() -> None:
    example = runpy.run_path(str(EXAMPLE.with_name("model.py")))
    rng = np.random.default_rng(0)
    points, gradients = 0.5 * rng.normal(size=(12, 3)), rng.normal(size=(12, 3))
    gradients[4, 1] = np.nan
    denoiser = coco.Denoiser(model=example["Nearby"](1.0), window=4)
    with pytest.raises(ValueError, match="finite"):
        denoiser(points[0], gradients[4])
    kept = np.delete(np.arange(12), 4)
    found = {k: denoiser(points[k], gradients[k]) for k in kept}
    for n, k in enumerate(kept):
        window = kept[max(0, n - 3) : n + 1]
        near = window[np.linalg.norm(points[window] - points[k], axis=1) <= 1.0]
        np.testing.assert_allclose(found[k], gradients[near].mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("options", [{"window": 3}, {"window": 3, "forget": "fold"}])
def test_a_device_of_ones_own_gives_the_same_gradients(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    def walk() -> list[Any]:
        rng, p = np.random.default_rng(0), torch.nn.Parameter(torch.zeros(7, dtype=torch.float64))
        denoiser, answers = GradientDenoiser([p], L=0.5, **options), []
        for _ in range(8):
            p.data, p.grad = (torch.from_numpy(rng.normal(size=7)) for _ in range(2))
            denoiser.denoise()
            answers.append(p.grad.clone())
        return answers

    expected = walk()
    monkeypatch.setitem(PASSES, "cpu", HOST)  # which puts it back in the end
    runpy.run_path(str(EXAMPLE.with_name("device.py")))
    assert PASSES["cpu"] is not HOST
    torch.testing.assert_close(walk(), expected)
