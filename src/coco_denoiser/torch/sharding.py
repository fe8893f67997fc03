"""Parameters that live in pieces on several ranks: which piece is here, and how it counts.

A window never gathers a parameter. Every rank holds its own part of each observation, sums over
that part, and the sums, 3K + 2 numbers, are added over the ranks.
"""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist


def is_sharded(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is a DTensor, without importing their module."""
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements")


def refuse_flattened(parameters: Iterable[torch.Tensor]) -> None:
    """Refuse parameters of FSDP1, whose flat shards do not tell which ranks hold the others."""
    if any(getattr(p, "_fsdp_flattened", False) for p in parameters):
        raise TypeError(
            "parameters are sharded by FullyShardedDataParallel (FSDP1): each rank would average "
            "its shard with weights of its own. Use FSDP2, torch.distributed.fsdp.fully_shard."
        )


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a tensor that this rank holds."""
    if not is_sharded(tensor):
        return tensor
    part: Any = tensor.to_local()  # type: ignore[attr-defined]
    wait = getattr(part, "wait", None)  # a collective may still be under way
    return wait() if callable(wait) else part  # type: ignore[no-any-return]


def local_gradient(parameter: torch.Tensor, gradient: Any) -> Any:
    """Return the part of a gradient that belongs to this rank's part of the parameter."""
    if gradient is None or not is_sharded(parameter):
        return gradient
    wanted = parameter.placements  # type: ignore[attr-defined]
    if gradient.placements != wanted:
        gradient = gradient.redistribute(placements=wanted)
    return local(gradient)


def like(parameter: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """Return a rank's part as what it is a part of: a DTensor if the parameter is one."""
    if not is_sharded(parameter):
        return part
    kind: Any = type(parameter.data)
    whole: torch.Tensor = kind.from_local(
        part,
        parameter.device_mesh,  # type: ignore[attr-defined]
        parameter.placements,  # type: ignore[attr-defined]
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
    return whole


def group_of(parameters: Iterable[torch.Tensor], given: dist.ProcessGroup | None) -> Any:
    """Return the process group over which to add, or None if every rank has everything.

    Unless it is given: the ranks over which the parameters are sharded.
    """
    if given is not None:
        return given
    meshes: list[Any] = []
    for parameter in parameters:
        if is_sharded(parameter) and parameter.device_mesh not in meshes:  # type: ignore[attr-defined]
            meshes.append(parameter.device_mesh)  # type: ignore[attr-defined]
    if not meshes:
        return None
    if any(mesh.size() == dist.get_world_size() for mesh in meshes):
        return dist.group.WORLD
    if len(meshes) == 1 and meshes[0].ndim == 1:
        return meshes[0].get_group()
    raise ValueError(
        f"process_group cannot be derived from {len(meshes)} device meshes that do not cover all "
        f"{dist.get_world_size()} ranks. Pass process_group=, the ranks that together hold the "
        "parameters."
    )


def share(parameter: torch.Tensor, group: Any) -> float:
    """Return what this rank's part counts for, so that over the group everything counts once.

    A parameter that is cut into some number of pieces has n / pieces copies on n ranks.
    """
    pieces = 1
    if is_sharded(parameter):
        mesh: Any = parameter.device_mesh  # type: ignore[attr-defined]
        for axis, placement in enumerate(parameter.placements):  # type: ignore[attr-defined]
            if placement.is_partial():
                raise ValueError(
                    "parameters must be sharded or replicated, got one that is a partial sum "
                    f"({placement}). Redistribute it first."
                )
            if placement.is_shard():
                pieces *= mesh.size(axis)
    return 1.0 if group is None else pieces / dist.get_world_size(group)
