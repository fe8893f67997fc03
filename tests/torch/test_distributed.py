"""Several processes: what one process would do, on every rank, with 3K + 2 numbers sent a step.

What a rank does is a function that a spawned process can find; it trains the same small model on
the same data as the others, and asserts what its name says.
"""

import multiprocessing
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Adam

from coco_denoiser.torch import CocoOptimizer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyTorch on scripts of its own
    from torch.distributed.optim import ZeroRedundancyOptimizer

# PyTorch's own remarks about its checkpoint formats and about gloo.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

STEPS, BATCH = 12, 8


def model() -> nn.Sequential:
    """Return a network whose layers do not divide evenly by the number of ranks."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3), nn.Linear(3, 1)).double()


def wrapped(module: nn.Module, kind: Any = Adam, **options: Any) -> CocoOptimizer:
    """Return an optimizer for which denoising makes a difference at every step."""
    inner = kind(module.parameters(), lr=1e-2)
    return CocoOptimizer(inner, **{"L": 0.5, "window": 4, **options})


def train(
    module: nn.Module, optimizer: CocoOptimizer, steps: range, rank: int = 0, size: int = 1
) -> None:
    """Take steps, with this rank's part of the joint batch of each."""
    for step in steps:
        optimizer.zero_grad()
        draw = torch.Generator().manual_seed(step)
        x, y = (torch.randn(BATCH, n, generator=draw, dtype=torch.float64) for n in (5, 1))
        torch.autograd.backward(nn.functional.mse_loss(module(x[rank::size]), y[rank::size]))
        optimizer.step()


def run(work: Callable[..., None], size: int, folder: Path) -> None:
    """Run work(rank, size, folder) in several processes, and fail if one of them does."""
    # Forked from a process that has done the imports, and nothing else.
    multiprocessing.set_forkserver_preload(
        ["torch.distributed.fsdp", "torch.distributed.checkpoint", "coco_denoiser.torch"]
    )
    start: Any = vars(torch.multiprocessing)["start_processes"]
    start(_start, (work, size, folder), nprocs=size, start_method="forkserver")


def _start(rank: int, work: Callable[..., None], size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size
    )
    try:
        work(rank, size, folder)
    finally:
        dist.destroy_process_group()


def whole(module: nn.Module) -> list[torch.Tensor]:
    """Return all parameters, gathered."""
    return [
        p.full_tensor() if hasattr(p, "full_tensor") else p.detach().clone()
        for p in (p.detach() for p in module.parameters())
    ]


def assert_close(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def assert_equals_one_process(module: nn.Module) -> None:
    """Every rank has the same bits, close to where one process ends up."""
    found, alone = whole(module), model()
    assert_same([p.tolist() for p in found])
    optimizer = wrapped(alone)
    train(alone, optimizer, range(STEPS))
    assert optimizer.diagnostics().weights[-1] < 0.9
    assert_close(found, whole(alone))


def assert_same(found: list[Any]) -> None:
    others: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(others, found)
    assert others == [found] * len(others)


def data_parallel_ranks_equal_one_process(rank: int, size: int, _: Path) -> None:
    """DDP, in which every rank has everything; then with ZeroRedundancyOptimizer inside."""
    zero = partial(ZeroRedundancyOptimizer, optimizer_class=Adam)
    # Adding up what is equal anyway must not matter.
    for kind, group in ((Adam, None), (Adam, dist.group.WORLD), (zero, None)):
        module = DistributedDataParallel(model())
        optimizer = wrapped(module, kind, process_group=group)
        train(module, optimizer, range(STEPS), rank, size)
        assert_equals_one_process(module)


def what_would_average_each_shard_by_itself_is_refused(*_: Any) -> None:
    for original in (False, True):
        flat = FullyShardedDataParallel(
            model(), device_id=torch.device("cpu"), use_orig_params=original
        )
        with pytest.raises(TypeError, match="FSDP1"):
            wrapped(flat).step()


def shards_equal_one_process_and_are_saved(rank: int, size: int, folder: Path) -> None:
    """FSDP2 on a line of ranks; rank 0 notes where the checkpoint leads."""
    module = model()
    for layer in (*module, module):
        fully_shard(layer)
    optimizer = wrapped(module)
    train(module, optimizer, range(STEPS), rank, size)
    assert_equals_one_process(module)
    state = dict(zip(("model", "optimizer"), get_state_dict(module, optimizer), strict=True))
    save(state, checkpoint_id=folder / "checkpoint")
    torch.save(optimizer.state_dict(), folder / f"optimizer{rank}.pt")
    optimizer.load_state_dict(torch.load(folder / f"optimizer{rank}.pt"))
    train(module, optimizer, range(STEPS, 2 * STEPS), rank, size)
    end = whole(module), optimizer.diagnostics().weights.tolist()
    if rank == 0:
        torch.save(end, folder / "end.pt")
    ranks_may_differ_in_gradients_that_are_none_or_not_finite(module, optimizer, rank)


def ranks_may_differ_in_gradients_that_are_none_or_not_finite(
    module: nn.Module, optimizer: CocoOptimizer, rank: int
) -> None:
    parameters, sizes, plain = list(module.parameters()), list[int](), dist.all_reduce

    def counted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        sizes.append(tensor.numel())
        return plain(tensor, *args, **kwargs)

    for p in parameters:
        p.grad = torch.ones_like(p)
    parameters[rank].grad = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_reduce", counted)
        optimizer.step()
    assert sizes == [3 * 4 + 2]  # all that a step sends
    assert_same(optimizer.diagnostics().weights.tolist())
    for p in parameters:
        p.grad = torch.ones_like(p)
    if rank == 1:
        parameters[0].grad = None
        parameters[1].grad = torch.full_like(parameters[1], torch.nan)
    optimizer.denoiser.nonfinite = "raise"
    with pytest.raises(ValueError, match="on this or on another rank"):
        optimizer.step()
    assert optimizer.diagnostics().skipped == 1  # on both ranks, whoever caused it


def a_grid_with_ignored_parameters_equals_one_process(rank: int, size: int, _: Path) -> None:
    """FSDP2 on a 2-D mesh (replicated, then sharded), with a parameter that is left out."""
    module = model()
    left_out = module[3]
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("copy", "shard"))
    fully_shard(module, mesh=mesh, ignored_params=set(left_out.parameters()))

    def average(gradient: torch.Tensor) -> torch.Tensor:
        part = gradient / size
        dist.all_reduce(part)
        return part

    for p in left_out.parameters():  # replicated, and nobody else averages it
        p.register_hook(average)  # type: ignore[no-untyped-call]  # PyTorch's
    train(module, wrapped(module), range(STEPS), rank, size)
    assert_equals_one_process(module)


def two_ranks(*given: Any) -> None:
    """Everything that two ranks can show."""
    data_parallel_ranks_equal_one_process(*given)
    what_would_average_each_shard_by_itself_is_refused(*given)
    shards_equal_one_process_and_are_saved(*given)


def test_two_ranks_equal_one_process_which_can_go_on_from_their_checkpoint(tmp_path: Path) -> None:
    run(two_ranks, 2, tmp_path)
    module = model()
    optimizer = wrapped(module)
    parts = get_state_dict(module, optimizer)
    state: dict[str, Any] = dict(zip(("model", "optimizer"), parts, strict=True))
    load(state, checkpoint_id=tmp_path / "checkpoint", no_dist=True)
    names = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"]}
    set_state_dict(module, optimizer, **names)
    train(module, optimizer, range(STEPS, 2 * STEPS))
    parameters, weights = torch.load(tmp_path / "end.pt")
    assert_close(whole(module), parameters)
    np.testing.assert_allclose(optimizer.diagnostics().weights, weights, rtol=1e-6)


def test_a_grid_of_ranks_equals_one_process(tmp_path: Path) -> None:
    run(a_grid_with_ignored_parameters_equals_one_process, 4, tmp_path)
