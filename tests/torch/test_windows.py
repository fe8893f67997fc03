"""A window for each group: as if each had a denoiser to itself, but all or none."""

from typing import Any

import pytest
import torch

from coco_denoiser.torch import CocoOptimizer
from tests.torch.problems import alike, by_layer, equal, noisy_gradients, two_layers

OPTIONS: dict[str, Any] = {"L": 0.5, "window": 4}


def begun(steps: int, **options: Any) -> tuple[list[Any], CocoOptimizer]:
    optimizer = by_layer(model := two_layers(), **OPTIONS | options)
    noisy_gradients(tensors := list(model.parameters()), steps, optimizer.step)
    return tensors, optimizer


def test_each_is_denoised_by_itself() -> None:
    tensors, one = begun(12, per="group")
    split = [list(layer.parameters()) for layer in two_layers()]
    others = [CocoOptimizer(torch.optim.SGD(part, lr=0.1), **OPTIONS) for part in split]
    noisy_gradients([*split[0], *split[1]], 12, lambda: [other.step() for other in others])
    assert equal(tensors, [*split[0], *split[1]])
    assert not equal(tensors, begun(12)[0])
    for i, other in enumerate(others):
        assert str(one.diagnostics(i)) == str(other.diagnostics())


def test_what_one_refuses_leaves_no_trace_in_any() -> None:
    tensors, one = begun(5, per="group", nonfinite="raise")
    tensors[-1].grad = torch.full_like(tensors[-1], torch.inf)
    with pytest.raises(ValueError, match="infinity or NaN"):
        one.step()
    assert alike(tensors, one, *begun(5, per="group"), 4)
    assert one.diagnostics().skipped == 1


def test_a_state_of_other_windows_is_refused() -> None:
    kinds = ("model", "group")
    made = {per: begun(5, per=per)[1] for per in kinds}
    for per, other in (kinds, kinds[::-1]):
        with pytest.raises(ValueError, match=f"with per={other}, this one has per={per}"):
            made[per].load_state_dict(made[other].state_dict())
    assert all(len(optimizer.denoiser) == 4 for optimizer in made.values())
    state = made["group"].state_dict()
    names = [name for group in state["param_groups"] for name in group["params"]]
    state["param_groups"] = [{**state["param_groups"][0], "params": names}]
    with pytest.raises(ValueError, match="state lacks centre"):
        made["group"].load_state_dict(state)


def test_a_group_may_have_a_window_of_its_own_or_none() -> None:
    windows, layers = (0, 3), two_layers()
    split: list[Any] = [
        {"params": list(layer.parameters()), "window": window}
        for layer, window in zip(layers, windows, strict=True)
    ]
    inner, members = torch.optim.SGD(split, lr=0.1), list(layers.parameters())
    optimizer = CocoOptimizer(inner, per="group", L=0.5, window=8)
    used: list[Any] = []
    inner.register_step_pre_hook(
        lambda *_: used.append([p.grad.clone() for p in members if p.grad is not None])
    )
    noisy_gradients(members, 6, optimizer.step)
    raw: list[Any] = [p.grad for p in members]
    assert equal(used[-1][:2], raw[:2])
    assert not equal(used[-1][2:], raw[2:])
    assert optimizer.diagnostics(1).weights.size == 3
    assert optimizer.diagnostics(0).nbytes == 0
    assert "coco_point_0" not in optimizer.state_dict()["state"].get(0, {})
    optimizer.load_state_dict(optimizer.state_dict())
