"""What each rank does in the tests of several processes: functions that a spawned process can find.

Every function trains the same small model on the same data, and rank 0 saves what came out.
"""

import contextlib
import multiprocessing
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from coco_denoiser.torch import CocoOptimizer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyTorch on scripts of its own
    from torch.distributed.optim import ZeroRedundancyOptimizer

STEPS, BATCH = 12, 8


def model() -> nn.Sequential:
    """Return a network whose layers do not divide evenly by the number of ranks."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3), nn.Linear(3, 1)).double()


def wrapped(module: nn.Module, **options: Any) -> CocoOptimizer:
    """Return an optimizer for which denoising makes a difference at every step."""
    inner = torch.optim.Adam(module.parameters(), lr=1e-2)
    return CocoOptimizer(inner, **{"L": 0.5, "window": 4, **options})


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the joint batch of a step."""
    draw = torch.Generator().manual_seed(step)
    x = torch.randn(BATCH, 5, generator=draw, dtype=torch.float64)
    return x, torch.randn(BATCH, 1, generator=draw, dtype=torch.float64)


def loss_of(module: nn.Module, step: int, rank: int = 0, size: int = 1) -> torch.Tensor:
    """Return the loss over this rank's part of the batch."""
    x, y = batch(step)
    return nn.functional.mse_loss(module(x[rank::size]), y[rank::size])


def train(
    module: nn.Module, optimizer: CocoOptimizer, steps: range, rank: int = 0, size: int = 1
) -> None:
    """Take steps."""
    for step in steps:
        optimizer.zero_grad()
        torch.autograd.backward(loss_of(module, step, rank, size))
        optimizer.step()


def run(work: Callable[..., Any], size: int, folder: Path) -> list[Any]:
    """Run work(rank, size, folder) in several processes; return what each of them returned."""
    # Forked from a process that has done the imports, and nothing else.
    multiprocessing.set_forkserver_preload(
        ["torch.distributed.fsdp", "torch.distributed.checkpoint", "coco_denoiser.torch"]
    )
    start: Any = vars(torch.multiprocessing)["start_processes"]
    start(_start, (work, size, folder), nprocs=size, start_method="forkserver")
    return [torch.load(folder / f"{rank}.pt") for rank in range(size)]


def _start(rank: int, work: Callable[..., Any], size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size
    )
    try:
        torch.save(work(rank, size, folder), folder / f"{rank}.pt")
    finally:
        dist.destroy_process_group()


def whole(module: nn.Module) -> list[torch.Tensor]:
    """Return all parameters, gathered."""
    return [
        p.full_tensor() if hasattr(p, "full_tensor") else p.detach().clone()
        for p in (p.detach() for p in module.parameters())
    ]


def two_ranks(rank: int, size: int, folder: Path) -> dict[str, Any]:
    """Everything that two ranks can show."""
    return {
        "replicated": _data_parallel(rank, size),
        "flattened": _flattened(),
        **_line(rank, size, folder),
    }


def _data_parallel(rank: int, size: int) -> list[list[torch.Tensor]]:
    """DDP, in which every rank has everything; then with ZeroRedundancyOptimizer inside."""
    found = []
    for kind in ("derived", "given", "zero"):
        module = DistributedDataParallel(model())
        # Adding up what is equal anyway must not matter.
        optimizer = wrapped(module, process_group=dist.group.WORLD if kind == "given" else None)
        if kind == "zero":
            inner = ZeroRedundancyOptimizer(module.parameters(), torch.optim.Adam, lr=1e-2)
            optimizer = CocoOptimizer(inner, L=0.5, window=4)
        train(module, optimizer, range(STEPS), rank, size)
        found.append(whole(module))
    return found


def _line(rank: int, size: int, folder: Path) -> dict[str, Any]:
    """FSDP2 on a line of ranks: trajectory, traffic, checkpoint, ranks without a gradient."""
    module = model()
    for layer in module:
        fully_shard(layer)
    fully_shard(module)
    optimizer = wrapped(module)
    train(module, optimizer, range(STEPS), rank, size)
    found: dict[str, Any] = {"parameters": whole(module), "numbers": _traffic(module, optimizer)}
    state: dict[str, Any] = dict(
        zip(("model", "optimizer"), get_state_dict(module, optimizer), strict=True)
    )
    save(state, checkpoint_id=folder / "checkpoint")
    torch.save(optimizer.state_dict(), folder / f"optimizer{rank}.pt")
    optimizer.load_state_dict(torch.load(folder / f"optimizer{rank}.pt"))
    train(module, optimizer, range(STEPS, 2 * STEPS), rank, size)
    found.update(resumed=whole(module), weights=optimizer.diagnostics().weights.tolist())
    return {**found, "uneven": _uneven(module, optimizer, rank)}


def _traffic(module: nn.Module, optimizer: CocoOptimizer) -> list[int]:
    """Return how many numbers each collective of one step carried, the state being as before."""
    sizes = []
    plain = dist.all_reduce

    def counted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        sizes.append(tensor.numel())
        return plain(tensor, *args, **kwargs)

    dist.all_reduce = counted
    try:
        for p in module.parameters():
            p.grad = torch.full_like(p, torch.inf)
        _refused(optimizer)  # but only after asking the other ranks
    finally:
        dist.all_reduce = plain
    return sizes


def _refused(optimizer: CocoOptimizer) -> None:
    optimizer.denoiser.nonfinite = "raise"
    with contextlib.suppress(ValueError):
        optimizer.step()
        raise AssertionError("it was taken")
    optimizer.denoiser.nonfinite = "skip"


def _uneven(module: nn.Module, optimizer: CocoOptimizer, rank: int) -> dict[str, Any]:
    """Let ranks differ in which gradients are None, and in where an infinity appears."""
    parameters = list(module.parameters())
    for p in parameters:
        p.grad = torch.ones_like(p)
    parameters[rank].grad = None
    optimizer.step()
    weights = optimizer.diagnostics().weights.tolist()
    for p in parameters:
        p.grad = torch.ones_like(p)
    if rank == 1:
        parameters[0].grad = None
        parameters[1].grad = torch.full_like(parameters[1], torch.nan)
    held = [p.detach().clone() for p in parameters]
    _refused(optimizer)
    kept = all(
        torch.equal(a.to_local(), b.to_local())  # type: ignore[attr-defined]
        for a, b in zip(held, (p.detach() for p in parameters), strict=True)
    )
    skipped = optimizer.diagnostics().skipped
    return {"weights": weights, "skipped": skipped, "kept": kept}


def grid(rank: int, size: int, folder: Path) -> dict[str, Any]:
    """FSDP2 on a 2-D mesh (replicated, then sharded), with a parameter that is left out."""
    module = model()
    left_out = module[3]
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("copy", "shard"))
    fully_shard(module, mesh=mesh, ignored_params=set(left_out.parameters()))
    optimizer = wrapped(module)
    for step in range(STEPS):
        optimizer.zero_grad()
        torch.autograd.backward(loss_of(module, step, rank, size))
        for p in left_out.parameters():  # replicated, and nobody else averages it
            if p.grad is not None:
                dist.all_reduce(p.grad)
                p.grad.div_(size)
        optimizer.step()
    return {"parameters": whole(module), "weights": optimizer.diagnostics().weights.tolist()}


def resume(checkpoint: Path) -> tuple[list[torch.Tensor], list[float]]:
    """Read a checkpoint of two ranks on one, without any process group, and go on."""
    module = model()
    optimizer = wrapped(module)
    parts = get_state_dict(module, optimizer)
    state: dict[str, Any] = dict(zip(("model", "optimizer"), parts, strict=True))
    load(state, checkpoint_id=checkpoint, no_dist=True)
    model_state, optim_state = state["model"], state["optimizer"]
    set_state_dict(module, optimizer, model_state_dict=model_state, optim_state_dict=optim_state)
    train(module, optimizer, range(STEPS, 2 * STEPS))
    return whole(module), optimizer.diagnostics().weights.tolist()


def _flattened() -> list[str]:
    """Return what was taken of FSDP1."""
    found = []
    for original in (False, True):
        module = FullyShardedDataParallel(
            model(), device_id=torch.device("cpu"), use_orig_params=original
        )
        with contextlib.suppress(TypeError):
            wrapped(module)
            found.append(f"FSDP1 with use_orig_params={original} was taken")
    return found
