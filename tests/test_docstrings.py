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
WITHOUT = {  # an example of their own
    *("MinimizeResult", "Status", "Dataset"),  # what functions return
    *("breast_cancer", "fourclass", "mushrooms"),  # have to be downloaded
}


def derives(thing: object, base: type) -> bool:
    return isinstance(thing, type) and issubclass(thing, base)


@pytest.mark.parametrize("name", PUBLIC)
def test_examples_run_and_print_what_they_say(name: str) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder().find(PUBLIC[name], name, globs={}):
        runner.run(test)
    failed, tried = runner.summarize(verbose=False)
    assert not failed
    alike = any(derives(PUBLIC[name], base) for base in (Exception, optimizers.Optimizer))
    assert tried or alike or name.rpartition(".")[2] in WITHOUT


@pytest.mark.parametrize("name", PUBLIC)
def test_a_misspelt_option_is_an_error_before_it_runs(name: str) -> None:
    """Type checkers cannot see what a function that takes any keyword will refuse."""
    function = PUBLIC[name]
    assert inspect.getdoc(function)
    if not derives(function, Exception):
        parameters = inspect.signature(function).parameters.values()
        assert inspect.Parameter.VAR_KEYWORD not in [p.kind for p in parameters]
