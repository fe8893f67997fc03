"""Two groups of two dtypes: copied, saved and restored, a window goes on bit for bit."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from coco_denoiser.torch import CocoOptimizer
from tests.torch.problems import equal, saved


class Model(nn.Module):
    """Four parameters, of two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(4, 3)
        self.head = nn.Linear(3, 2).double()


def groups(model: Model) -> list[dict[str, Any]]:
    return [{"params": list(part.parameters())} for part in (model.body, model.head)]


def made(network: Model, /, **options: Any) -> CocoOptimizer:
    return CocoOptimizer(torch.optim.SGD(groups(network), lr=0.1), **options)


def run(optimizer: CocoOptimizer, model: Model, steps: range) -> list[Any]:
    """Take steps; return all the parameters after each."""
    found = []
    for step in steps:
        draw = torch.Generator().manual_seed(step)
        for p in model.parameters():
            p.grad = p.detach() + torch.randn(p.shape, generator=draw).to(p)
        optimizer.step()
        found += [p.detach().clone() for p in model.parameters()]
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"L": 0.5, "window": 4},
        {"model": "gaussian", "window": 5},
        {"L": 0.5, "window": 4, "forget": "fold"},
        {"L": 0.5, "window": 2, "forget": "fold"},
    ],
    ids=str,
)
def test_what_is_restored_or_copied_goes_on_bit_for_bit(options: dict[str, Any]) -> None:
    model = Model()
    one = made(model, **options)
    run(one, model, range(7))
    loaded, read = ((other := copy.deepcopy(model), made(other, **options)) for _ in range(2))
    loaded[1].load_state_dict(saved(one))
    # A template made by a dummy step has room for all that is saved: dcp.load fills it in place.
    template: Any = get_optimizer_state_dict(*read)
    state: Any = get_optimizer_state_dict(model, one)
    for mine, theirs in zip(*(each["state"].values() for each in (template, state)), strict=True):
        assert mine.keys() == theirs.keys()
    assert len(read[1].denoiser) == 0
    set_optimizer_state_dict(*read, state)
    pickled = pickle.loads(pickle.dumps((model, one)))
    others = [loaded, read, pickled, copy.deepcopy((model, one))]
    expected = run(one, model, range(7, 14))
    for other, optimizer in others:
        assert equal(expected, run(optimizer, other, range(7, 14)))
