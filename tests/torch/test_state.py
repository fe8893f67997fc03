"""The state_dict: PyTorch's shape, whatever reads or writes it."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from coco_denoiser import Gaussian
from coco_denoiser.torch import CocoOptimizer
from tests.torch.problems import (
    adam,
    alike,
    begun,
    coco,
    equal,
    history,
    noisy_gradients,
    parameters,
    saved,
)


def test_shape_is_the_standard_one() -> None:
    tensors, optimizer = begun(2, adam)
    state = saved(optimizer)
    assert list(state) == ["state", "param_groups"]
    assert list(state["state"]) == state["param_groups"][0]["params"] == [0, 1, 2]
    slots = {f"coco_{kind}_{k}" for kind in ("point", "residual") for k in range(4)}
    for p, entries in zip(tensors, state["state"].values(), strict=True):
        assert entries.keys() == {"exp_avg", "exp_avg_sq", "step", "coco_seen"} | slots
        assert all(entries[name].shape == p.shape for name in slots)
    # A new optimizer has room for the window, into which a checkpoint can be read in place.
    assert saved(coco(parameters()))["state"].keys() == state["state"].keys()
    # The wrapped optimizer stays free of our entries.
    optimizer.load_state_dict(saved(optimizer))
    names = [name for entries in optimizer.state.values() for name in entries]
    names += [name for group in optimizer.param_groups for name in group]
    assert not [name for name in names if name.startswith("coco_")]


def test_states_of_the_wrapped_optimizer_alone_load_with_one_warning_and_ours_load_there() -> None:
    tensors, optimizer = begun(3, adam, window=1)
    others = copy.deepcopy(tensors)
    plain, alone = (torch.optim.Adam(others, lr=0.1) for _ in range(2))
    plain.load_state_dict(saved(optimizer))
    assert alike(tensors, optimizer, others, plain, 3)
    noisy_gradients(others, 2, alone.step)
    fresh = adam(again := copy.deepcopy(others))
    with pytest.warns(UserWarning, match="state_dict holds no window") as found:
        fresh.load_state_dict(saved(alone))
    assert len(found) == 1
    assert alike(again, fresh, others, alone, 1)
    assert len(fresh.denoiser) == 1


@pytest.mark.parametrize(
    "options", [{"forget": "fold"}, {"window": 2, "forget": "fold"}, {"model": Gaussian()}], ids=str
)
def test_what_is_restored_or_copied_goes_on_bit_for_bit(options: dict[str, Any]) -> None:
    """With two groups of two dtypes; contracts/test_stream.py has the denoiser alone."""

    def wrap(layers: nn.Sequential) -> CocoOptimizer:
        return coco([{"params": list(layer.parameters())} for layer in layers], **options)

    torch.manual_seed(0)
    one = wrap(model := nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2).double()))
    noisy_gradients(list(model.parameters()), 7, one.step)
    twin = copy.deepcopy(model)
    read = twin, wrap(twin)
    # A template made by a dummy step has room for all that is saved: dcp.load fills it in place.
    template: Any = get_optimizer_state_dict(*read)
    state: Any = get_optimizer_state_dict(model, one)
    for mine, theirs in zip(*(each["state"].values() for each in (template, state)), strict=True):
        assert mine.keys() == theirs.keys()
    assert len(read[1].denoiser) == 0
    set_optimizer_state_dict(*read, state)
    pickled = pickle.loads(pickle.dumps((model, one)))
    for module, optimizer in ((model, one), read, pickled):
        noisy_gradients(list(module.parameters()), 7, optimizer.step, seed=5)
        assert equal(list(module.parameters()), list(model.parameters()))


def test_tables_without_vectors_and_states_without_tables_are_refused() -> None:
    _, optimizer = begun(3)
    with pytest.raises(ValueError, match=r"state lacks .*: it is not the state of a stream"):
        optimizer.denoiser.load_state_dict(optimizer.wrapped.state_dict())
    state = saved(optimizer)
    with pytest.raises(ValueError, match="tables of 3 observations and no vectors"):
        optimizer.load_state_dict({**state, "state": {}})


@pytest.mark.parametrize("steps", [0, 2])
def test_a_step_is_none_where_gradients_and_all_rates_are_zero(steps: int) -> None:
    """Checkpointing takes such a step to create the state."""
    tensors = parameters()
    optimizer = adam([{"params": tensors[:1], "lr": 0.0}, {"params": tensors[1:]}])
    noisy_gradients(tensors, steps, optimizer.step)
    for p in tensors:
        p.grad = torch.zeros_like(p)
    for rate in (0.1, 0.0):
        optimizer.param_groups[1]["lr"] = rate
        optimizer.step()
        # An empty window has no use for zeros.
        assert len(optimizer.denoiser) == (steps + 1 if steps else 0)
    assert optimizer.state


def test_a_flattened_state_loses_the_window_and_says_so() -> None:
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    layer = nn.Linear(4, 3)
    optimizer = adam(layer.parameters())
    noisy_gradients(list(layer.parameters()), 3, optimizer.step)
    state = get_optimizer_state_dict(layer, optimizer, options=options)
    with pytest.warns(UserWarning, match="holds no window"):
        set_optimizer_state_dict(layer, optimizer, state, options=options)


NOT_FINITE = torch.full((3, 4), -torch.inf).double()
BEYOND = torch.full((3, 4), 1e39, dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        # Of other settings.
        ("coco_window", 5, "saved with window=5, this one has window=4"),
        ("coco_forget", "fold", "saved with forget=fold, this one has forget=drop"),
        ("coco_model", "gaussian", "saved with model=gaussian, this one has model=cocoercive"),
        # Damaged.
        ("coco_next", 1000, "next must be at most 3, got 1000"),
        ("coco_count", 5, "count must be at most 4"),
        ("coco_point_distances", [[0.0]], r"point_distances must have shape \(4, 4\)"),
        ("coco_point_2", torch.zeros(3), r"coco_point_2 of parameter 0 must have shape \(3, 4\)"),
        ("coco_residual_1", None, r"must have shape \(3, 4\), got None"),
        ("coco_point_0", NOT_FINITE * torch.nan, "coco_point_0 of parameter 0 must be finite"),
        ("coco_residual_3", NOT_FINITE, "coco_residual_3 of parameter 0 must be finite"),
        ("coco_count", torch.nan, "count must be an integer"),
        ("coco_seen", torch.nan, "coco_seen of parameter 0 must be an integer"),
        # What would not be what was saved, once it is in the window.
        ("coco_point_1", BEYOND, "must be finite in torch.float32"),
        ("coco_point_1", 1j * BEYOND, "coco_point_1 of parameter 0 must be real"),
        # What NumPy's streams refuse of their tables, these do too.
        ("coco_variances", [-1.0] * 4, "variances must be positive"),
    ],
)
def test_a_window_that_does_not_fit_is_refused_before_anything_changes(
    name: str, value: Any, message: str
) -> None:
    optimizer = adam(tensors := parameters(torch.float32))
    noisy_gradients(tensors, 5, optimizer.step)
    state, before = saved(optimizer), history(optimizer)
    (state["state"][0] if name in state["state"][0] else state["param_groups"][0])[name] = value
    state["param_groups"][0]["lr"] = 7.0
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert len(optimizer.denoiser) == 4
    assert equal(history(optimizer), before)
