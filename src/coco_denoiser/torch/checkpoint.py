"""A window put into the state_dict of the wrapped optimizer, and taken out of it again.

The layout is PyTorch's own, {"state": {index: {...}}, "param_groups": [...]}. Each parameter's
state holds its history, one tensor of its shape per slot, so that whatever can shard, gather or
reshard an optimizer's state can do so with the window. The tables, which have no parameter's shape,
are in the first group.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from coco_denoiser._validation import damaged, saved_count
from coco_denoiser.torch import sharding
from coco_denoiser.torch.vectors import dtype_of
from coco_denoiser.typing import Saved, State

if TYPE_CHECKING:
    from coco_denoiser.torch.denoiser import GradientDenoiser

PREFIX = "coco_"


def insert(state: State, window: "GradientDenoiser") -> None:
    """Add a window to a state_dict of an optimizer of the same parameters."""
    vectors = window.vectors
    index = {id(p): i for i, p in enumerate(window.parameters)}
    there = vectors.covers([p for p in vectors.members if id(p) in index])
    if not (vectors.members and there):  # else they have changed, which ends a window
        # Room for a window, so that a checkpoint can be read into it in place.
        window.stream.reset()
        vectors.prepare([p for p in window.parameters if p.requires_grad])
    for block in vectors.blocks:
        for (p, history), seen in zip(block.slots(), block.seen, strict=True):
            entries = state["state"].setdefault(index[id(p)], {})
            entries[f"{PREFIX}seen"] = int(seen)
            entries.update({PREFIX + name: tensor for name, tensor in history.items()})
    for home in state["param_groups"][:1]:
        for name, value in {"model": window.model.name, **window.stream.state_dict()}.items():
            home[PREFIX + name] = value
            if isinstance(value, np.ndarray):
                # The same shape however many slots are in use.
                table = np.pad(value, [(0, vectors.slots - len(value))] * value.ndim)
                home[PREFIX + name] = torch.from_numpy(table)


def holds(state: Saved) -> bool:
    """Return whether there is a window in a state."""
    return any(f"{PREFIX}version" in group for group in state["param_groups"])


def remove(state: Saved) -> State:
    """Return the wrapped optimizer's part of a state."""
    saved = state["state"].items()
    kept = {index: plain for index, all_ in saved if (plain := _plain(all_)) or not all_}
    return {**state, "state": kept, "param_groups": list(map(_plain, state["param_groups"]))}


def _plain(entries: Saved) -> State:
    return {name: v for name, v in entries.items() if not str(name).startswith(PREFIX)}


def check(state: Saved, window: "GradientDenoiser") -> Callable[[], None]:
    """Check all that `insert` has saved; return what puts it back, and refuses nothing more.

    Raises:
        ValueError: if something is damaged or of other settings.
    """
    groups = state["param_groups"]
    names = [name for group in groups for name in group["params"]]
    if len(names) != len(window.parameters):
        raise ValueError(
            f"state was saved with {len(names)} parameters, this optimizer has "
            f"{len(window.parameters)}."
        )
    tables = _tables(groups[0] if groups else {}, window)
    held = _vectors(state["state"], window, names)
    if tables["count"] and not held:
        raise damaged(f"it has tables of {tables['count']} observations and no vectors")

    def restore() -> None:
        vectors = window.vectors
        vectors.prepare([p for p in window.parameters if id(p) in held])
        for block in vectors.blocks:
            block.seen = [bool(held[id(p)][f"{PREFIX}seen"]) for p in block.members]
            for p, history in block.slots():
                for name, tensor in history.items():
                    tensor.copy_(held[id(p)][PREFIX + name])
        window.stream.load_state_dict(tables)

    return restore


def _tables(home: Saved, window: "GradientDenoiser") -> State:
    """Return the tables of a window, or refuse them."""
    small = {
        str(name).removeprefix(PREFIX): value.cpu().numpy() if torch.is_tensor(value) else value
        for name, value in home.items()
        if str(name).startswith(PREFIX)
    }
    window.stream.check_settings(small, {"model": window.model.name})
    slots = window.vectors.slots
    count = saved_count(small, "count", 0, slots)
    for name, value in small.items():
        if isinstance(value, np.ndarray):
            if value.shape != (slots,) * value.ndim:
                raise damaged(f"{name} must be a table of {slots} slots, got shape {value.shape}")
            small[name] = value[(slice(count),) * value.ndim]
    return window.stream.window.checked(small)


def _vectors(
    saved: Mapping[object, State], window: "GradientDenoiser", names: list[object]
) -> dict[int, State]:
    """Return the history of each parameter that has one, by its id, or refuse it."""
    held = {}
    slots = range(window.vectors.slots)
    keys = [f"{PREFIX}{kind}_{k}" for kind in ("point", "residual") for k in slots]
    for p, name in zip(window.parameters, names, strict=True):
        entries = saved.get(name, {})
        if not any(key in entries for key in keys):
            continue
        for key in keys:
            found = entries.get(key)
            if not torch.is_tensor(found) or found.shape != p.shape:
                raise damaged(
                    f"{key} of parameter {name} must have shape {tuple(p.shape)}, got "
                    f"{tuple(found.shape) if torch.is_tensor(found) else found}"
                )
            if found.is_complex() > p.is_complex():
                raise damaged(f"{key} of parameter {name} must be real, got {found.dtype}")
            if not sharding.local(found).abs().to(dtype := dtype_of(p)).isfinite().all():
                raise damaged(f"{key} of parameter {name} must be finite in {dtype}")
        seen = f"{PREFIX}seen of parameter {name}"
        saved_count({seen: entries.get(f"{PREFIX}seen")}, seen, 0, 1)
        held[id(p)] = entries
    return held
