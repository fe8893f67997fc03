"""A window inside the state_dict of the wrapped optimizer, and out of it again.

The layout is PyTorch's own, {"state": {index: {...}}, "param_groups": [...]}. Each parameter's
state holds its history, one tensor of its shape a slot, so that whatever can shard, gather or
reshard an optimizer's state can do it with the window. What has no parameter's shape, the tables,
lies in the first group.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from coco_denoiser._validation import damaged, saved_count
from coco_denoiser.curvature.online import StreamEstimate
from coco_denoiser.tables import Tables
from coco_denoiser.torch.denoiser import GradientDenoiser

PREFIX = "coco_"
_VECTORS = ("point", "residual")
_TABLES = ("point_distances", "residual_distances")
_VERSION = 1


def insert(state: dict[str, Any], window: GradientDenoiser, parameters: list[torch.Tensor]) -> None:
    """Add a window to a state_dict of the optimizer of these parameters."""
    if not window.members:
        # Room for a window, so that a checkpoint can be read into it in place.
        window.prepare([p for p in parameters if p.requires_grad])
    index = {id(p): i for i, p in enumerate(parameters)}
    seen = {id(p): int(was) for p, was in zip(window.members, window.seen, strict=True)}
    for ring in window.rings:
        for p, points, residuals in ring.slots():
            entries = state["state"].setdefault(index[id(p)], {})
            entries[f"{PREFIX}seen"] = seen[id(p)]
            for k, (point, residual) in enumerate(zip(points, residuals, strict=True)):
                entries[f"{PREFIX}point_{k}"] = point
                entries[f"{PREFIX}residual_{k}"] = residual
    if not state["param_groups"]:
        return
    small = window.tables.state_dict()
    group = state["param_groups"][0]
    group[f"{PREFIX}version"] = _VERSION
    group[f"{PREFIX}window"] = window.window
    group[f"{PREFIX}forget"] = window.forget
    group[f"{PREFIX}count"] = small["count"]
    group[f"{PREFIX}next"] = small["next"]
    group[f"{PREFIX}centre"] = window.centre
    if window.estimate is not None:
        group[f"{PREFIX}estimate"] = torch.from_numpy(window.estimate.state())
    for name in _TABLES:
        table = np.zeros((window.slots, window.slots))
        table[: small["count"], : small["count"]] = small[name]
        group[PREFIX + name] = torch.from_numpy(table)
    variances = np.ones(window.slots)
    variances[: small["count"]] = small["variances"]
    group[f"{PREFIX}variances"] = torch.from_numpy(variances)


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
    window: GradientDenoiser,
    parameters: list[torch.Tensor],
) -> None:
    """Refuse what `restore` could not put back, before anything has changed."""
    group = ours["group"]
    if group[f"{PREFIX}version"] != _VERSION:
        raise ValueError(
            f"state was saved with layout {group[f'{PREFIX}version']}, this release reads "
            f"{_VERSION}."
        )
    for name, mine in (("window", window.window), ("forget", window.forget)):
        if group[PREFIX + name] != mine:
            raise ValueError(
                f"state was saved with {name}={group[PREFIX + name]}, this optimizer has "
                f"{name}={mine}. Create it with the same {name}."
            )
    if (f"{PREFIX}estimate" in group) != (window.estimate is not None):
        raise ValueError(
            "state was saved with L given and this optimizer has L='auto', or the other way "
            "round. Create it with the same L."
        )
    if window.estimate is not None:
        StreamEstimate.checked(_arrays(group))
    _tables(group, window)
    _vectors(ours, saved_groups, window, parameters)


def restore(
    ours: Mapping[str, Any],
    saved_groups: list[dict[str, Any]],
    window: GradientDenoiser,
    parameters: list[torch.Tensor],
) -> None:
    """Put a window back that `remove` has taken out of a state_dict with these groups."""
    group = ours["group"]
    tables, held = _tables(group, window), _vectors(ours, saved_groups, window, parameters)
    window.reset()
    window.prepare([p for p in parameters if id(p) in held])
    window.seen[:] = [bool(held[id(p)][f"{PREFIX}seen"]) for p in window.members]
    for ring in window.rings:
        for p, points, residuals in ring.slots():
            for k in range(window.slots):
                points[k].copy_(held[id(p)][f"{PREFIX}point_{k}"])
                residuals[k].copy_(held[id(p)][f"{PREFIX}residual_{k}"])
    window.tables.load_state_dict(tables)
    window.centre = float(group[f"{PREFIX}centre"])
    if window.estimate is not None:
        window.estimate.load_state(StreamEstimate.checked(_arrays(group)))


def _arrays(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return our entries of a group under their own names, tensors as arrays."""
    return {
        name.removeprefix(PREFIX): value.cpu().numpy() if torch.is_tensor(value) else value
        for name, value in group.items()
    }


def _tables(group: Mapping[str, Any], window: GradientDenoiser) -> dict[str, Any]:
    """Return the tables of the slots in use, or refuse what no window can have written."""
    small = _arrays(group)
    count = saved_count(small, "count", 0, window.slots)
    for name in _TABLES:
        if np.shape(small[name]) != (window.slots, window.slots):
            raise damaged(f"{name} must be a table of {window.slots} slots")
        small[name] = small[name][:count, :count]
    small["variances"] = np.atleast_1d(small["variances"])[:count]
    return Tables.checked(small, window.slots)


def _vectors(
    ours: Mapping[str, Any],
    saved_groups: list[dict[str, Any]],
    window: GradientDenoiser,
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
        for key in [f"{PREFIX}{kind}_{k}" for kind in _VECTORS for k in range(window.slots)]:
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
