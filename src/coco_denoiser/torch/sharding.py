"""Parameters that live in pieces on several ranks: which piece is here, and how it counts.

A window never gathers a parameter. Every rank holds its own part of each observation, sums over
that part, and the sums, 3K + 2 numbers, are added over the ranks.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeGuard, cast

import torch
import torch.distributed as dist
from torch.utils.dlpack import from_dlpack

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_sharded(tensor: torch.Tensor) -> "TypeGuard[DTensor]":
    """Return whether a tensor is a DTensor, without importing their module."""
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements")


def local(tensor: torch.Tensor, of: torch.Tensor | None = None) -> torch.Tensor:
    """Return the part of a tensor that this rank holds; of a gradient, where its parameter is."""
    if not is_sharded(tensor):
        return tensor
    if of is not None and is_sharded(of) and tensor.placements != of.placements:
        tensor = tensor.redistribute(placements=of.placements)
    part = tensor.to_local()
    wait = getattr(part, "wait", None)  # a collective may still be under way
    return cast("torch.Tensor", wait()) if callable(wait) else part


def placed(parameter: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """Return a rank's part as what it is a part of: a DTensor if the parameter is one."""
    if not is_sharded(parameter):
        return part
    if part.storage_offset():  # a DTensor of such a view can be neither copied nor saved
        part = from_dlpack(part)
    layout = parameter.device_mesh, parameter.placements
    shape, stride = parameter.shape, parameter.stride()
    return type(parameter).from_local(part, *layout, run_check=False, shape=shape, stride=stride)


def group_of(
    parameters: Iterable[torch.Tensor], given: dist.ProcessGroup | None
) -> dist.ProcessGroup | None:
    """Return the process group over which to add, or None if every rank has everything.

    Unless it is given: the ranks over which the parameters are sharded.
    """
    meshes = list(dict.fromkeys(p.device_mesh for p in parameters if is_sharded(p)))
    if given is not None or not meshes:
        return given
    if any(mesh.size() == dist.get_world_size() for mesh in meshes):
        return dist.group.WORLD
    if len(meshes) == 1 and meshes[0].ndim == 1:
        return meshes[0].get_group()
    raise ValueError(
        f"process_group cannot be derived from {len(meshes)} device meshes that do not cover all "
        f"{dist.get_world_size()} ranks. Pass process_group=, the ranks that together hold the "
        "parameters."
    )


def share(parameter: torch.Tensor, group: dist.ProcessGroup | None) -> float:
    """Return what this rank's part counts for, so that over the group everything counts once.

    A parameter that is cut into some number of pieces has n / pieces copies on n ranks. Refused
    are flat shards, which do not tell which ranks hold the others, and partial sums.
    """
    if getattr(parameter, "_fsdp_flattened", False):
        raise TypeError(
            "parameters are sharded by FullyShardedDataParallel (FSDP1): each rank would average "
            "its shard with weights of its own. Use FSDP2, torch.distributed.fsdp.fully_shard."
        )
    pieces = 1
    if is_sharded(parameter):
        mesh, placements = parameter.device_mesh, parameter.placements
        if any(how.is_partial() for how in placements):
            raise ValueError(
                "parameters must be sharded or replicated, got one that is a partial sum. "
                "Redistribute it first."
            )
        pieces = math.prod(mesh.size(k) for k, how in enumerate(placements) if how.is_shard())
    return 1.0 if group is None else pieces / dist.get_world_size(group)
