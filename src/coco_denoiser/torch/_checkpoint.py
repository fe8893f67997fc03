"""A window inside the state_dict of the wrapped optimizer, and out of it again.

The layout is PyTorch's own, {"state": {index: {...}}, "param_groups": [...]}. Each parameter's
state holds its history, one tensor of its shape a slot, so that whatever can shard, gather or
reshard an optimizer's state can do it with the window. What has no parameter's shape, the tables,
lies in the first group.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from coco_denoiser._validation import damaged, saved_count

if TYPE_CHECKING:
    from coco_denoiser.torch.denoiser import GradientDenoiser

PREFIX = "coco_"


def insert(
    state: dict[str, Any], window: "GradientDenoiser", parameters: list[torch.Tensor]
) -> None:
    """Add a window to a state_dict of the optimizer of these parameters."""
    vectors, slots = window.vectors, window.vectors.slots
    if not vectors.members:
        # Room for a window, so that a checkpoint can be read into it in place.
        vectors.prepare([p for p in parameters if p.requires_grad])
    index = {id(p): i for i, p in enumerate(parameters)}
    seen = {id(p): int(was) for p, was in zip(vectors.members, vectors.seen, strict=True)}
    for ring in vectors.rings:
        for p, history in ring.slots():
            entries = state["state"].setdefault(index[id(p)], {})
            entries[f"{PREFIX}seen"] = seen[id(p)]
            entries.update({PREFIX + name: tensor for name, tensor in history.items()})
    if not state["param_groups"]:
        return
    group = state["param_groups"][0]
    for name, value in {**_settings(window), **window.engine.state_dict()}.items():
        group[PREFIX + name] = value
        if isinstance(value, np.ndarray):
            group[PREFIX + name] = torch.from_numpy(_padded(name, value, slots))


def _settings(window: "GradientDenoiser") -> dict[str, Any]:
    """Return what a state must have been saved with, besides what the engine asks for."""
    return {
        "model": window.model.settings["model"],
        "storage": str(window.vectors.keep.storage),
    }


def _padded(name: str, value: Any, slots: int) -> Any:
    """Return an array that has the same shape however many slots are in use."""
    if name == "estimate":
        return value
    empty = slots - len(value)
    return np.pad(value, [(0, empty)] * value.ndim, constant_values=float(name == "variances"))


def remove(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what belongs to the wrapped optimizer, and what to the window."""
    plain: dict[str, Any] = {**state, "state": {}, "param_groups": []}
    ours: dict[str, Any] = {"state": {}, "group": {}}
    for index, entries in state["state"].items():
        kept, taken = _part(entries)
        if kept or not taken:
            plain["state"][index] = kept
        if taken:
            ours["state"][index] = taken
    for group in state["param_groups"]:
        kept, taken = _part(group)
        plain["param_groups"].append(kept)
        ours["group"].update(taken)
    return plain, ours


def check(
    ours: Mapping[str, Any],
    saved_groups: list[dict[str, Any]],
    window: "GradientDenoiser",
    parameters: list[torch.Tensor],
) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Return tables, and vectors by parameter, or raise ValueError before anything has changed."""
    small = {
        name.removeprefix(PREFIX): value.cpu().numpy() if torch.is_tensor(value) else value
        for name, value in ours["group"].items()
    }
    slots = window.vectors.slots
    count = saved_count(small, "count", 0, slots) if small.get("window") == window.window else 0
    for name, value in small.items():
        if isinstance(value, np.ndarray) and name != "estimate":
            if count and value.shape != (slots,) * value.ndim:
                raise damaged(f"{name} must be a table of {slots} slots, got shape {value.shape}")
            small[name] = value[(slice(count),) * value.ndim]
    tables = window.engine.checked(small, _settings(window))
    return tables, _vectors(ours, saved_groups, window, parameters)


def restore(
    ours: Mapping[str, Any],
    saved_groups: list[dict[str, Any]],
    window: "GradientDenoiser",
    parameters: list[torch.Tensor],
) -> None:
    """Put a window back that `remove` has taken out of a state_dict with these groups."""
    tables, held = check(ours, saved_groups, window, parameters)
    window.reset()
    vectors = window.vectors
    vectors.prepare([p for p in parameters if id(p) in held])
    vectors.seen = [bool(held[id(p)][f"{PREFIX}seen"]) for p in vectors.members]
    for ring in vectors.rings:
        for p, history in ring.slots():
            for name, tensor in history.items():
                tensor.copy_(held[id(p)][PREFIX + name])
    window.engine.load_state_dict(tables)


def _vectors(
    ours: Mapping[str, Any],
    saved_groups: list[dict[str, Any]],
    window: "GradientDenoiser",
    parameters: list[torch.Tensor],
) -> dict[int, dict[str, Any]]:
    """Return the history of each parameter that has one, by its id, or refuse it."""
    names = [name for saved in saved_groups for name in saved["params"]]
    if len(names) != len(parameters):
        raise ValueError(
            f"state was saved with {len(names)} parameters, this optimizer has {len(parameters)}."
        )
    held = {
        id(p): (p, n, ours["state"][n])
        for n, p in zip(names, parameters, strict=True)
        if n in ours["state"]
    }
    for p, name, entries in held.values():
        for key in [PREFIX + part for part in window.vectors.names(p)]:
            found = entries.get(key)
            if not torch.is_tensor(found) or found.shape != p.shape:
                raise damaged(
                    f"{key} of parameter {name} must have shape {tuple(p.shape)}, got "
                    f"{None if found is None else tuple(found.shape)}"
                )
    return {key: entries for key, (_, _, entries) in held.items()}


def _part(entries: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    kept = {k: v for k, v in entries.items() if not str(k).startswith(PREFIX)}
    return kept, {k: v for k, v in entries.items() if str(k).startswith(PREFIX)}
