"""PyTorch's own database of optimizers and their settings, each of them wrapped."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from coco_denoiser.torch import CocoOptimizer
from tests.torch.problems import copies, equal, noisy_gradients, parameters

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_optimizers import (
        _get_optim_inputs_including_global_cliquey_kwargs as inputs_of,
    )
    from torch.testing._internal.common_optimizers import optim_db

REFUSED: tuple[Any, ...] = (torch.optim.LBFGS, torch.optim.SparseAdam)
TAKEN = [info for info in optim_db if info.optim_cls not in REFUSED]


def settings(info: Any) -> list[dict[str, Any]]:
    """Every set of arguments; a step that is differentiated through takes no parameters."""
    found = inputs_of("cpu", torch.float64, info, skip=("differentiable",))
    return [each.kwargs for each in found if not each.kwargs.get("differentiable")]


def create(info: Any, kwargs: dict[str, Any], tensors: list[nn.Parameter]) -> Optimizer:
    optimizer: Optimizer = info.optim_cls(tensors, **copy.deepcopy(kwargs))
    return optimizer


def wrap(
    info: Any, kwargs: dict[str, Any], tensors: list[nn.Parameter], **bounds: Any
) -> CocoOptimizer:
    return CocoOptimizer(create(info, kwargs, tensors), window=4, **bounds)


def test_the_database_has_what_torch_has() -> None:
    assert {info.optim_cls for info in TAKEN} >= {torch.optim.SGD, torch.optim.Adam}
    assert min(len(settings(info)) for info in TAKEN) > 1


@pytest.mark.filterwarnings("ignore")  # what PyTorch thinks of some of its settings
@pytest.mark.parametrize("info", TAKEN, ids=lambda info: info.optim_cls.__name__)
def test_every_setting_is_kept(info: Any) -> None:
    """Where no constraint is active it is the wrapped optimizer, with states loaded in between."""
    for kwargs in settings(info):
        tensors = parameters()
        others = copies(tensors)
        around, alone = wrap(info, kwargs, tensors, L=1e9, mu=-1e9), create(info, kwargs, others)
        for seed in range(3):
            noisy_gradients(tensors, 2, around.step, seed=seed)
            noisy_gradients(others, 2, alone.step, seed=seed)
            assert equal(tensors, others), kwargs
            states = copy.deepcopy((around.state_dict(), alone.state_dict()))
            around = wrap(info, kwargs, tensors, L=1e9, mu=-1e9)
            around.load_state_dict(states[0])
            alone = create(info, kwargs, others)
            alone.load_state_dict(states[1])
        assert len(around.denoiser) == 4


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("info", TAKEN, ids=lambda info: info.optim_cls.__name__)
def test_denoised_it_goes_in_the_right_direction(info: Any) -> None:
    for kwargs in settings(info)[::3]:
        tensors = parameters()
        optimizer = wrap(info, kwargs, tensors, L=1.0)
        before = sum(float(p.detach().square().sum()) for p in tensors)
        noisy_gradients(tensors, 20, optimizer.step, noise=0.3)
        after = sum(float(p.detach().square().sum()) for p in tensors)
        assert (after < before) != kwargs.get("maximize", False), kwargs
        assert optimizer.diagnostics().weights.sum() == pytest.approx(1.0)
