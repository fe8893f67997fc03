"""A window put into the state_dict of the wrapped optimizer, and taken out of it again.

The layout is PyTorch's own, {"state": {index: {...}}, "param_groups": [...]}. Each parameter's
state holds its history, one tensor of its shape per slot, so that whatever can shard, gather or
reshard an optimizer's state can do so with the window. The tables, which have no parameter's shape,
are in the first group, as lists.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from coco_denoiser._validation import damaged, saved_count
from coco_denoiser._warnings import warn_user
from coco_denoiser.torch import sharding
from coco_denoiser.typing import Saved, State

if TYPE_CHECKING:
    from coco_denoiser.torch.denoiser import GradientDenoiser

PREFIX = "coco_"


def insert(state: State, window: "GradientDenoiser") -> None:
    """Add a window to a state_dict of an optimizer of the same parameters."""
    index = {id(p): i for i, p in enumerate(window.parameters)}
    there = window.covers([p for p in window.members if id(p) in index])
    if not (window.members and there):  # else they have changed, which ends a window
        # Room for a window, so that a checkpoint can be read into it in place.
        window.prepare([p for p in window.parameters if p.requires_grad])
    for block in window.blocks:
        for (p, history), seen in zip(block.slots(), block.seen, strict=True):
            entries = state["state"].setdefault(index[id(p)], {})
            entries[f"{PREFIX}seen"] = int(seen)
            entries.update({PREFIX + name: tensor for name, tensor in history.items()})
    tables = {"model": window.stream.model.name, **window.stream.state_dict()}
    for home in state["param_groups"][:1]:
        # As lists: tensors that are read in place need one shape, however many slots are used.
        for name, value in tables.items():
            home[PREFIX + name] = value.tolist() if isinstance(value, np.ndarray) else value


def split(state: Saved, window: "GradientDenoiser") -> tuple[State, Callable[[], None]]:
    """Return the wrapped optimizer's part of a state, and what puts the window in its place.

    Raises:
        ValueError: if there is a window that is damaged or of other settings.
    """

    def empty() -> None:
        window.prepare([])
        warn_user(
            "state_dict holds no window (it is one of the wrapped optimizer alone): "
            "denoising starts with an empty one."
        )

    groups, saved = state["param_groups"], state["state"].items()
    there = any(f"{PREFIX}version" in group for group in groups)
    kept = {index: plain for index, all_ in saved if (plain := _plain(all_))}
    rest = {**state, "state": kept, "param_groups": list(map(_plain, groups))}
    return rest, read(state, window) if there else empty


def _plain(entries: Saved) -> State:
    return {name: v for name, v in entries.items() if not str(name).startswith(PREFIX)}


def read(state: Saved, window: "GradientDenoiser") -> Callable[[], None]:
    """Read all that `insert` has saved; return what puts it in place, and refuses nothing more.

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
    home = groups[0] if groups else {}
    found = {str(k).removeprefix(PREFIX): v for k, v in home.items() if str(k).startswith(PREFIX)}
    window.stream.check_settings(found, {"model": window.stream.model.name})
    tables = window.stream.window.checked(found)
    saved = {
        id(p): (name, entries)
        for p, name in zip(window.parameters, names, strict=True)
        for entries in [state["state"].get(name, {})]
        if any(str(key).startswith(PREFIX) for key in entries)
    }
    if tables["count"] and not saved:
        raise damaged(f"it has tables of {tables['count']} observations and no vectors")
    members = [p for p in window.parameters if id(p) in saved]
    blocks = window.room(members)
    for block in blocks:
        for j, (p, history) in enumerate(block.slots()):
            name, entries = saved[id(p)]
            for kind, tensor in history.items():
                key = PREFIX + kind
                _copy(f"{key} of parameter {name}", entries.get(key), tensor)
            seen = f"{PREFIX}seen of parameter {name}"
            block.seen[j] = bool(saved_count({seen: entries.get(f"{PREFIX}seen")}, seen, 0, 1))

    def restore() -> None:
        window.prepare(members, blocks)
        window.stream.window.load_state_dict(tables)

    return restore


def _copy(name: str, saved: Any, tensor: torch.Tensor) -> None:
    """Fill a tensor with a saved one, or refuse that."""
    if not torch.is_tensor(saved) or saved.shape != tensor.shape:
        shape = tuple(saved.shape) if torch.is_tensor(saved) else saved
        raise damaged(f"{name} must have shape {tuple(tensor.shape)}, got {shape}")
    if saved.is_complex() > tensor.is_complex():
        raise damaged(f"{name} must be real, got {saved.dtype}")
    if not sharding.local(tensor.copy_(saved)).isfinite().all():
        raise damaged(f"{name} must be finite in {tensor.dtype}")
