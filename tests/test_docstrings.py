"""Every public name is described, its examples run, and a misspelt option is an error."""

import doctest
import inspect
from types import FunctionType

import pytest

import coco_denoiser as coco
import coco_denoiser.optax
import coco_denoiser.torch
from coco_denoiser import curvature
from coco_denoiser.paper import optimizers, problems

PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (coco, curvature, coco_denoiser.torch, coco_denoiser.optax, optimizers, problems)
    for name in module.__all__
    if isinstance(thing := getattr(module, name), type | FunctionType)
    and not getattr(thing, "_is_protocol", False)
}
SHOWN = [
    "coco_denoiser.denoise",
    "coco_denoiser.solve",
    "coco_denoiser.minimize",
    "coco_denoiser.Denoiser",
    "coco_denoiser.Solution",
    "coco_denoiser.curvature.Curvature",
    "coco_denoiser.curvature.linear_model",
    "coco_denoiser.curvature.spectrum",
    "coco_denoiser.torch.CocoOptimizer",
    "coco_denoiser.torch.GradientDenoiser",
    "coco_denoiser.torch.Diagnostics",
    "coco_denoiser.torch.hessian_bounds",
    "coco_denoiser.optax.coco_denoise",
    "coco_denoiser.optax.CocoState",
    "coco_denoiser.optax.hessian_bounds",
    "coco_denoiser.paper.optimizers.run",
    "coco_denoiser.paper.optimizers.FrankWolfe",
    "coco_denoiser.paper.optimizers.GradientMean",
    "coco_denoiser.paper.optimizers.decreasing",
    "coco_denoiser.paper.optimizers.project_l1_ball",
    "coco_denoiser.paper.optimizers.project_simplex",
    "coco_denoiser.paper.optimizers.soft_threshold",
    "coco_denoiser.paper.problems.LogisticRegression",
    "coco_denoiser.paper.problems.Quadratic",
    "coco_denoiser.paper.problems.signed_labels",
]


@pytest.mark.parametrize("name", PUBLIC)
def test_examples_run_and_print_what_they_say(name: str) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder().find(PUBLIC[name], name, globs={}):
        runner.run(test)
    failed, tried = runner.summarize(verbose=False)
    assert not failed
    assert tried or name not in SHOWN


@pytest.mark.parametrize("name", PUBLIC)
def test_a_misspelt_option_is_an_error_before_it_runs(name: str) -> None:
    """Type checkers cannot see what a function that takes any keyword will refuse."""
    function = PUBLIC[name]
    assert inspect.getdoc(function)
    if not (isinstance(function, type) and issubclass(function, Exception)):
        parameters = inspect.signature(function).parameters.values()
        assert inspect.Parameter.VAR_KEYWORD not in [p.kind for p in parameters]
