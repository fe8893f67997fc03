"""A window for each group: as if each had a denoiser to itself, but all or none."""

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


def made(per: Any, network: Model, /, **options: Any) -> CocoOptimizer:
    return CocoOptimizer(torch.optim.SGD(groups(network), lr=0.1), per=per, **options)


def run(optimizers: list[CocoOptimizer], model: Model, steps: range, bad: int = -1) -> list[Any]:
    """Take steps; return all the parameters after each. At step `bad`, try an infinity first."""
    found = []
    for step in steps:
        draw = torch.Generator().manual_seed(step)
        for p in model.parameters():
            p.grad = p.detach() + torch.randn(p.shape, generator=draw).to(p)
        if step == bad:
            last = list(model.parameters())[-1]
            kept, last.grad = last.grad, torch.full_like(last, torch.inf)
            for optimizer in optimizers:
                with pytest.raises(ValueError, match="infinity or NaN"):
                    optimizer.step()
            last.grad = kept
        for optimizer in optimizers:
            optimizer.step()
        found += [p.detach().clone() for p in model.parameters()]
    return found


def test_each_is_denoised_by_itself() -> None:
    options: dict[str, Any] = {"L": 0.5, "window": 4}
    model, apart, plain = (Model() for _ in range(3))
    one = made("group", model, **options)
    split = [g["params"] for g in groups(apart)]
    others = [CocoOptimizer(torch.optim.SGD(part, lr=0.1), **options) for part in split]
    found = run([one], model, range(12))
    assert equal(found, run(others, apart, range(12)))
    assert not equal(found, run([made("model", plain, **options)], plain, range(12)))
    for i, other in enumerate(others):
        assert str(one.diagnostics(i)) == str(other.diagnostics())


def test_what_one_refuses_leaves_no_trace_in_any() -> None:
    model, other = Model(), Model()
    one = made("group", model, L=0.5, window=4, nonfinite="raise")
    found = run([one], model, range(9), bad=5)
    assert equal(found, run([made("group", other, L=0.5, window=4)], other, range(9)))
    assert one.diagnostics().skipped == 1


@pytest.mark.parametrize(
    "options", [{"L": 0.5, "window": 4}, {"model": "gaussian", "window": 5}], ids=str
)
def test_what_is_restored_or_copied_goes_on_bit_for_bit(options: dict[str, Any]) -> None:
    model = Model()
    one = made("group", model, **options)
    run([one], model, range(7))
    twins = (copy.deepcopy(model) for _ in range(2))
    loaded, read = ((other, made("group", other, **options)) for other in twins)
    loaded[1].load_state_dict(saved(one))
    set_optimizer_state_dict(*read, get_optimizer_state_dict(model, one))
    pickled = pickle.loads(pickle.dumps((model, one)))
    others = [loaded, read, pickled, copy.deepcopy((model, one))]
    expected = run([one], model, range(7, 14))
    for other, optimizer in others:
        assert equal(expected, run([optimizer], other, range(7, 14)))


def test_a_state_of_other_windows_is_refused() -> None:
    kinds = ("model", "group")
    made_of = {per: (model := Model(), made(per, model, L=0.5, window=4)) for per in kinds}
    for model, optimizer in made_of.values():
        run([optimizer], model, range(5))
    for per, other in (kinds, kinds[::-1]):
        with pytest.raises(ValueError, match=f"with per={other}, this one has per={per}"):
            made_of[per][1].load_state_dict(made_of[other][1].state_dict())
    assert all(len(o.denoiser) == 4 for _, o in made_of.values())
    state = made_of["group"][1].state_dict()
    names = [name for group in state["param_groups"] for name in group["params"]]
    state["param_groups"] = [{**state["param_groups"][0], "params": names}]
    with pytest.raises(ValueError, match="state lacks centre"):
        made_of["group"][1].load_state_dict(state)


def test_a_group_may_have_a_window_of_its_own_or_none() -> None:
    model = Model()
    split = groups(model)
    split[0]["window"], split[1]["window"] = 0, 3
    inner = torch.optim.SGD(split, lr=0.1)
    optimizer = CocoOptimizer(inner, per="group", L=0.5, window=8)
    used: list[Any] = []
    members: list[Any] = list(model.parameters())
    inner.register_step_pre_hook(lambda *_: used.append([p.grad.clone() for p in members]))
    run([optimizer], model, range(6))
    raw: list[Any] = [p.grad for p in model.parameters()]
    assert equal(used[-1][:2], raw[:2])
    assert not equal(used[-1][2:], raw[2:])
    assert optimizer.diagnostics(1).weights.size == 3
    assert optimizer.diagnostics(0).nbytes == 0
    assert "coco_point_0" not in optimizer.state_dict()["state"].get(0, {})
    optimizer.load_state_dict(optimizer.state_dict())
