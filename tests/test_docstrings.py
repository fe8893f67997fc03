"""Every public name is described, its examples run, and a misspelt option is an error."""

import doctest
import inspect

import pytest

import coco_denoiser as coco
import coco_denoiser.optax
import coco_denoiser.torch
from coco_denoiser import curvature

PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (coco, curvature, coco_denoiser.torch, coco_denoiser.optax)
    for name in module.__all__
    if callable(getattr(module, name))
}
SHOWN = [
    "coco_denoiser.denoise",
    "coco_denoiser.solve",
    "coco_denoiser.minimize",
    "coco_denoiser.Denoiser",
    "coco_denoiser.curvature.linear_model",
    "coco_denoiser.curvature.spectrum",
    "coco_denoiser.torch.CocoOptimizer",
    "coco_denoiser.torch.GradientDenoiser",
    "coco_denoiser.torch.hessian_bounds",
    "coco_denoiser.optax.coco_denoise",
    "coco_denoiser.optax.hessian_bounds",
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
