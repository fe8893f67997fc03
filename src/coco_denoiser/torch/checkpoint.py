"""Windows put into the state_dict of the wrapped optimizer, and taken out of it again.

The layout is PyTorch's own, {"state": {index: {...}}, "param_groups": [...]}. Each parameter's
state holds its history, one tensor of its shape per slot, so that whatever can shard, gather or
reshard an optimizer's state can do so with the window. The tables, which have no parameter's shape,
are in a group.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch

from coco_denoiser._validation import damaged, saved_count
from coco_denoiser.torch import sharding

if TYPE_CHECKING:
    from coco_denoiser.torch.denoiser import GradientDenoiser

PREFIX = "coco_"
Checked: TypeAlias = tuple[dict[str, Any], dict[int, dict[str, Any]]]


class Part(NamedTuple):
    """A window of some of the parameters.

    Attributes:
        window: the window.
        parameters: those that it covers.
        group: the group that its tables are saved in.
        per: what each window covers: "model" or "group".
    """

    window: "GradientDenoiser"
    parameters: list[torch.Tensor]
    group: int = 0
    per: str = "model"


def insert(state: dict[str, Any], parts: list[Part], parameters: list[torch.Tensor]) -> None:
    """Add windows to a state_dict of the optimizer of these parameters."""
    index = {id(p): i for i, p in enumerate(parameters)}
    for part in parts:
        window, vectors = part.window, part.window.vectors
        if not vectors.members:
            # Room for a window, so that a checkpoint can be read into it in place.
            vectors.prepare([p for p in part.parameters if p.requires_grad])
        seen = {id(p): int(was) for p, was in zip(vectors.members, vectors.seen, strict=True)}
        for block in vectors.blocks:
            for p, history in block.slots():
                entries = state["state"].setdefault(index[id(p)], {})
                entries[f"{PREFIX}seen"] = seen[id(p)]
                entries.update({PREFIX + name: tensor for name, tensor in history.items()})
        if not state["param_groups"]:
            continue
        home = state["param_groups"][part.group]
        for name, value in {**_settings(part), **window.stream.state_dict()}.items():
            home[PREFIX + name] = value
            if isinstance(value, np.ndarray):
                home[PREFIX + name] = torch.from_numpy(_padded(name, value, vectors.slots))


def _settings(part: Part) -> dict[str, Any]:
    """Return what a state must have been saved with, besides what the engine asks for."""
    return {"per": part.per, "model": part.window.model.settings["model"]}


def _padded(name: str, value: Any, slots: int) -> Any:
    """Return an array that has the same shape however many slots are in use."""
    empty = slots - len(value)
    return np.pad(value, [(0, empty)] * value.ndim, constant_values=float(name == "variances"))


def remove(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the wrapped optimizer's part of a state, and the windows' part."""
    plain: dict[str, Any] = {**state, "state": {}, "param_groups": []}
    ours: dict[str, Any] = {"state": {}, "param_groups": []}
    for index, entries in state["state"].items():
        kept, taken = _part(entries)
        if kept or not taken:
            plain["state"][index] = kept
        if taken:
            ours["state"][index] = taken
    for group in state["param_groups"]:
        kept, taken = _part(group)
        plain["param_groups"].append(kept)
        ours["param_groups"].append({**taken, "params": group["params"]})
    return plain, ours


def kinds(ours: Mapping[str, Any]) -> set[Any]:
    """Return what each saved window covers; nothing if there were no windows."""
    groups = ours["param_groups"]
    return {group.get(f"{PREFIX}per") for group in groups if f"{PREFIX}version" in group}


def check(
    ours: Mapping[str, Any], parts: list[Part], parameters: list[torch.Tensor]
) -> list[Checked]:
    """Return for each window its tables, and its vectors by parameter.

    Raises:
        ValueError: if something is damaged or of other settings.
    """
    names = [name for saved in ours["param_groups"] for name in saved["params"]]
    if len(names) != len(parameters):
        raise ValueError(
            f"state was saved with {len(names)} parameters, this optimizer has {len(parameters)}."
        )
    mine = {part.per for part in parts}
    for per in kinds(ours) - mine:
        raise ValueError(
            f"state was saved with per={per}, this one has per={', '.join(mine)}. Use the same "
            "per, or start with an empty window."
        )
    by_id = {id(p): name for p, name in zip(parameters, names, strict=True)}
    found = []
    for part in parts:
        tables = _tables(ours["param_groups"][part.group], part)
        found.append((tables, _vectors(ours["state"], part, by_id)))
    return found


def _tables(home: Mapping[str, Any], part: Part) -> dict[str, Any]:
    """Return the tables of a window, or refuse them."""
    window, settings = part.window, _settings(part)
    names = settings.keys() | window.stream.state_dict().keys()
    small = {name: home[PREFIX + name] for name in sorted(names) if PREFIX + name in home}
    small = {k: v.cpu().numpy() if torch.is_tensor(v) else v for k, v in small.items()}
    window.stream.check_settings(small, settings)
    slots = window.vectors.slots
    count = saved_count(small, "count", 0, slots)
    for name, value in small.items():
        if isinstance(value, np.ndarray):
            if value.shape != (slots,) * value.ndim:
                raise damaged(f"{name} must be a table of {slots} slots, got shape {value.shape}")
            small[name] = value[(slice(count),) * value.ndim]
    return window.stream.window.checked(small)


def restore(checked: list[Checked], parts: list[Part]) -> None:
    """Put windows back that `check` has found in order."""
    for part, (tables, held) in zip(parts, checked, strict=True):
        window, vectors = part.window, part.window.vectors
        window.reset()
        vectors.prepare([p for p in part.parameters if id(p) in held])
        vectors.seen = [bool(held[id(p)][f"{PREFIX}seen"]) for p in vectors.members]
        for block in vectors.blocks:
            for p, history in block.slots():
                for name, tensor in history.items():
                    tensor.copy_(held[id(p)][PREFIX + name])
        window.stream.load_state_dict(tables)


def _vectors(
    saved: Mapping[Any, dict[str, Any]], part: Part, names: Mapping[int, Any]
) -> dict[int, dict[str, Any]]:
    """Return the history of each parameter that has one, by its id, or refuse it."""
    held = {}
    for p in part.parameters:
        name = names[id(p)]
        entries = saved.get(name, {})
        slots = range(part.window.vectors.slots)
        keys = [f"{PREFIX}{kind}_{k}" for kind in ("point", "residual") for k in slots]
        if not any(key in entries for key in keys):
            continue
        for key in keys:
            found = entries.get(key)
            if not torch.is_tensor(found) or found.shape != p.shape:
                raise damaged(
                    f"{key} of parameter {name} must have shape {tuple(p.shape)}, got "
                    f"{None if found is None else tuple(found.shape)}"
                )
            if not sharding.local(found).isfinite().all():
                raise damaged(f"{key} of parameter {name} must be finite")
        if f"{PREFIX}seen" not in entries:
            raise damaged(f"{PREFIX}seen of parameter {name} is missing")
        held[id(p)] = entries
    return held


def _part(entries: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    kept = {k: v for k, v in entries.items() if not str(k).startswith(PREFIX)}
    return kept, {k: v for k, v in entries.items() if str(k).startswith(PREFIX)}
