"""The state_dict: PyTorch's shape, whatever reads or writes it."""

import copy
import io
import warnings
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from coco_denoiser.torch import CocoOptimizer
from tests.torch.problems import copies, equal, noisy_gradients, parameters


def coco(tensors: Any, **options: Any) -> CocoOptimizer:
    inner = torch.optim.Adam(tensors, lr=0.1)
    return CocoOptimizer(inner, **{"L": 1.0, "window": 4, **options})


def saved(optimizer: CocoOptimizer) -> dict[str, Any]:
    """Return the state as it comes out of a file."""
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    state: dict[str, Any] = torch.load(file, weights_only=True)
    return state


def test_shape_is_the_standard_one() -> None:
    tensors = parameters()
    optimizer = coco(tensors)
    noisy_gradients(tensors, 2, optimizer.step)
    state = saved(optimizer)
    assert list(state) == ["state", "param_groups"]
    assert list(state["state"]) == [0, 1, 2]
    assert state["param_groups"][0]["params"] == [0, 1, 2]
    for p, entries in zip(tensors, state["state"].values(), strict=True):
        assert {"exp_avg", "exp_avg_sq", "step"} <= entries.keys()
        for k in range(4):
            assert entries[f"coco_point_{k}"].shape == p.shape
            assert entries[f"coco_residual_{k}"].shape == p.shape


def test_the_wrapped_optimizer_stays_free_of_our_entries() -> None:
    tensors = parameters()
    optimizer = coco(tensors)
    noisy_gradients(tensors, 3, optimizer.step)
    optimizer.load_state_dict(saved(optimizer))
    names = [name for entries in optimizer.state.values() for name in entries]
    names += [name for group in optimizer.param_groups for name in group]
    assert not [name for name in names if name.startswith("coco_")]


def test_a_plain_checkpoint_loads_with_one_warning() -> None:
    tensors = parameters()
    plain = torch.optim.Adam(tensors, lr=0.1)
    noisy_gradients(tensors, 3, plain.step)
    others = copies(tensors)
    optimizer = coco(others)
    noisy_gradients(others, 2, optimizer.step)
    with torch.no_grad():
        for p, q in zip(tensors, others, strict=True):
            q.copy_(p)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        optimizer.load_state_dict(copy.deepcopy(plain.state_dict()))
    assert [str(w.message)[:29] for w in found] == ["state_dict holds no window (i"]
    assert len(optimizer.denoiser) == 0
    noisy_gradients(tensors, 1, plain.step, seed=5)
    noisy_gradients(others, 1, optimizer.step, seed=5)
    assert equal(tensors, others)


def test_our_checkpoint_loads_into_the_plain_optimizer() -> None:
    tensors = parameters()
    optimizer = coco(tensors, window=1)
    noisy_gradients(tensors, 3, optimizer.step)
    others = copies(tensors)
    plain = torch.optim.Adam(others, lr=0.1)
    plain.load_state_dict(saved(optimizer))
    noisy_gradients(tensors, 3, optimizer.step, seed=5)
    noisy_gradients(others, 3, plain.step, seed=5)
    assert equal(tensors, others)


def test_another_window_is_refused_and_another_curvature_is_not() -> None:
    tensors = parameters()
    optimizer = coco(tensors)
    noisy_gradients(tensors, 3, optimizer.step)
    longer = coco(copies(tensors), window=5)
    with pytest.raises(ValueError, match=r"saved with window=4, this one has window=5"):
        longer.load_state_dict(saved(optimizer))
    assert not longer.state  # refused as a whole
    others = copies(tensors)
    other = coco(others, L=lambda: 3.0)
    other.load_state_dict(saved(optimizer))
    optimizer.denoiser.L = 3.0
    noisy_gradients(tensors, 3, optimizer.step, seed=2)
    noisy_gradients(others, 3, other.step, seed=2)
    assert equal(tensors, others)


def test_an_empty_window_survives() -> None:
    optimizer = coco(parameters())
    fresh = coco(parameters())
    fresh.load_state_dict(saved(optimizer))
    assert len(fresh.denoiser) == 0


@pytest.mark.parametrize("steps", [0, 2])
def test_a_dummy_step_is_not_recorded(steps: int) -> None:
    tensors = parameters()
    optimizer = coco(tensors)
    noisy_gradients(tensors, steps, optimizer.step)
    for p in tensors:
        p.grad = torch.zeros_like(p)
    rate = optimizer.param_groups[0]["lr"]
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    optimizer.param_groups[0]["lr"] = rate
    assert len(optimizer.denoiser) == steps
    assert optimizer.state


def test_a_zero_gradient_in_training_is_an_observation() -> None:
    tensors = parameters()
    optimizer = coco(tensors)
    noisy_gradients(tensors, 2, optimizer.step)
    for p in tensors:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert len(optimizer.denoiser) == 3


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("full", [False, True])
def test_distributed_checkpointing_reads_what_it_wrote(base: Any, full: bool) -> None:
    options = StateDictOptions(full_state_dict=full)
    torch.manual_seed(0)
    some, others = nn.Linear(4, 3), nn.Linear(4, 3)
    optimizer, other = (
        CocoOptimizer(base(m.parameters(), lr=0.1), L=1.0, window=3) for m in (some, others)
    )
    noisy_gradients(list(some.parameters()), 5, optimizer.step)
    optimizer.zero_grad()
    others.load_state_dict(some.state_dict())
    # A template made by a dummy step, filled in place, then loaded: as dcp.load does it.
    template = get_optimizer_state_dict(others, other, options=options)
    state = copy.deepcopy(get_optimizer_state_dict(some, optimizer, options=options))
    mine, theirs = (cast("dict[str, Any]", s["state"]) for s in (template, state))
    assert {n: set(mine[n]) for n in mine} == {n: set(theirs[n]) for n in theirs}
    assert len(other.denoiser) == 0
    set_optimizer_state_dict(others, other, state, options=options)
    assert len(other.denoiser) == 3
    noisy_gradients(list(some.parameters()), 3, optimizer.step, seed=4)
    noisy_gradients(list(others.parameters()), 3, other.step, seed=4)
    assert equal(list(some.parameters()), list(others.parameters()))


def test_a_flattened_state_loses_the_window_and_says_so() -> None:
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    layer = nn.Linear(4, 3)
    optimizer = coco(layer.parameters())
    noisy_gradients(list(layer.parameters()), 3, optimizer.step)
    state = get_optimizer_state_dict(layer, optimizer, options=options)
    with pytest.warns(UserWarning, match="holds no window"):
        set_optimizer_state_dict(layer, optimizer, state, options=options)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("coco_next", 1000, "next must be at most 3, got 1000"),
        ("coco_next", -1, "next must be an integer of at least 0"),
        ("coco_count", 5, "count must be at most 4"),
        ("coco_point_distances", torch.zeros(3, 3), "point_distances must be a table of 4 slots"),
        ("coco_point_distances", torch.full((4, 4), torch.nan).double(), "must be finite"),
        (
            "coco_residual_distances",
            -torch.ones(4, 4).double(),
            "symmetric, and zero on the diagonal",
        ),
        ("coco_variances", -torch.ones(4).double(), "variances must be positive"),
        ("coco_variances", torch.ones(2).double(), "variances must be a table of 4 slots"),
        ("coco_cosines", torch.full((4, 4), 2.0).double().fill_diagonal_(0.0), "between -1 and 1"),
        ("coco_centre", torch.inf, "centre must be a finite number"),
        ("coco_point_2", torch.zeros(3), r"coco_point_2 of parameter 0 must have shape \(3, 4\)"),
        ("coco_residual_1", None, r"must have shape \(3, 4\), got None"),
    ],
)
def test_a_damaged_window_is_refused_as_a_whole(name: str, value: Any, message: str) -> None:
    tensors = parameters()
    optimizer = coco(tensors)
    noisy_gradients(tensors, 5, optimizer.step)
    state = saved(optimizer)
    (state["state"][0] if name in state["state"][0] else state["param_groups"][0])[name] = value
    before = saved(optimizer)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(state)
    after = saved(optimizer)
    assert before["param_groups"][0].keys() == after["param_groups"][0].keys()
    for mine, theirs in zip(before["state"].values(), after["state"].values(), strict=True):
        assert all(torch.equal(torch.as_tensor(mine[n]), torch.as_tensor(theirs[n])) for n in mine)
