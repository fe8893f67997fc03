"""PyTorch's own database of optimizers and their settings, each of them wrapped."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from coco_denoiser import Cocoercive
from coco_denoiser.torch import CocoOptimizer
from tests.torch.problems import alike, parameters

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_optimizers as database

REFUSED: tuple[Any, ...] = (torch.optim.LBFGS, torch.optim.SparseAdam)
TAKEN = [info for info in database.optim_db if info.optim_cls not in REFUSED]


def settings(info: Any) -> list[dict[str, Any]]:
    """Every set of arguments; a step that is differentiated through takes no parameters."""
    inputs_of = vars(database)["_get_optim_inputs_including_global_cliquey_kwargs"]
    found = inputs_of("cpu", torch.float64, info, skip=("differentiable",))
    return [each.kwargs for each in found if not each.kwargs.get("differentiable")]


@pytest.mark.filterwarnings("ignore")  # what PyTorch thinks of some of its settings
@pytest.mark.parametrize("info", TAKEN, ids=lambda info: info.optim_cls.__name__)
def test_every_setting_is_kept(info: Any) -> None:
    """Where no constraint is active it is the wrapped optimizer, with states loaded in between."""
    assert len(settings(info)) > 1
    for kwargs in settings(info):

        def create(tensors: list[nn.Parameter]) -> Optimizer:
            optimizer: Optimizer = info.optim_cls(tensors, **copy.deepcopy(kwargs))  # noqa: B023
            return optimizer

        tensors, others = parameters(), parameters()
        free: Any = {"model": Cocoercive(1e9, mu=-1e9), "window": 4}
        around, alone = CocoOptimizer(create(tensors), **free), create(others)
        for _ in range(3):
            assert alike(tensors, around, others, alone, 2), kwargs
            states = copy.deepcopy((around.state_dict(), alone.state_dict()))
            around, alone = CocoOptimizer(create(tensors), **free), create(others)
            around.load_state_dict(states[0])
            alone.load_state_dict(states[1])
        assert len(around.denoiser) == 4
