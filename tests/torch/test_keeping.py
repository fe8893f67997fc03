"""Where and how narrowly a window is kept: what it loses, what it takes, what it refuses."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

from coco_denoiser.torch import CocoOptimizer, GradientDenoiser

SHAPES = ((40,), (3, 4))


class Elsewhere(torch.Tensor):
    """A tensor in main memory that says it lies on another device."""

    near: torch.Tensor

    @staticmethod
    def __new__(cls: Any, near: torch.Tensor) -> Any:
        like: Any = {"dtype": near.dtype, "device": "lazy:0", "strides": near.stride()}
        self = torch.Tensor._make_wrapper_subclass(cls, near.shape, **like)
        self.near = near
        return self

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        del types
        kwargs = dict(kwargs or {})
        fetched = str(kwargs.pop("device", "")) == "cpu"
        args, kwargs = tree_map(lambda t: t.near if isinstance(t, cls) else t, (args, kwargs))
        found = function(*args, **kwargs)
        if fetched or found is args[0]:
            return found
        return tree_map(lambda t: cls(t) if isinstance(t, torch.Tensor) else t, found)


def parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    draw = torch.Generator().manual_seed(0)
    return [nn.Parameter(10 * torch.randn(s, generator=draw).to(dtype)) for s in SHAPES]


def travel(optimizer: CocoOptimizer, steps: int, *, far: float = 0.0) -> list[torch.Tensor]:
    """Go down a noisy bowl, far from the origin; return the gradients that the steps used."""
    draw, found = torch.Generator().manual_seed(1), []
    members = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer.wrapped.register_step_pre_hook(
        lambda *_: found.append(torch.cat([p.grad.detach().reshape(-1) for p in members]).double())
    )
    for p in members:
        p.data += far
    for _ in range(steps):
        for p in members:
            p.grad = (p.detach() - far) + torch.randn(p.shape, generator=draw).to(p)
        optimizer.step()
    return found


@pytest.mark.parametrize("options", [{"L": 1.0, "window": 8}, {"window": 16}])
@pytest.mark.parametrize("rate", [0.5, 0.03])
@pytest.mark.parametrize("far", [0.0, 1000.0])
def test_bfloat16_loses_less_than_a_hundredth_of_the_noise(
    options: dict[str, Any], rate: float, far: float
) -> None:
    paths = []
    for storage in (None, "bfloat16"):
        inner = torch.optim.SGD(parameters(torch.float64), lr=rate)
        kept: Any = {**options, "storage": storage}
        paths.append(torch.stack(travel(CocoOptimizer(inner, **kept), 60, far=far)))
    wide, narrow = paths
    # Of 60 steps the paths differ by what was lost in all of them.
    assert 0.0 < float((wide - narrow).square().mean().sqrt()) < 0.01


@pytest.mark.parametrize(("K", "narrow"), [(8, 38), (16, 70), (32, 134)])
def test_memory_is_what_the_docs_say(K: int, narrow: int) -> None:
    cases: list[tuple[dict[str, Any], int]] = [({}, 8 * K), ({"storage": "bfloat16"}, narrow)]
    for options, wanted in cases:
        p = nn.Parameter(torch.ones(160, dtype=torch.bfloat16))
        denoiser = GradientDenoiser(p, L=1.0, window=K, **options)
        p.grad = torch.ones_like(p)
        denoiser.denoise()
        assert denoiser.diagnostics().nbytes == 160 * wanted


def test_a_narrow_state_is_read_by_none_but_its_like() -> None:
    optimizers = [
        CocoOptimizer(torch.optim.SGD(parameters(), lr=0.1), L=1.0, window=4, storage=storage)
        for storage in ("bfloat16", None)
    ]
    travel(optimizers[0], 6)
    travel(optimizers[1], 3)
    before = optimizers[1].diagnostics()
    for i in (0, 1):
        with pytest.raises(ValueError, match="was saved with storage="):
            optimizers[i].load_state_dict(optimizers[1 - i].state_dict())
    assert str(optimizers[1].diagnostics()) == str(before)


def test_what_cannot_be_kept_so_is_refused() -> None:
    with pytest.raises(ValueError, match="storage must be 'bfloat16' or None, got 'int8'"):
        GradientDenoiser([], L=1.0, storage="int8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="saves nothing with window=2 and forget='fold'"):
        GradientDenoiser([], L=1.0, window=2, forget="fold", storage="bfloat16")
    for device in ("gpu", "meta"):
        with pytest.raises(ValueError, match=f"state_device must .*, got '{device}'"):
            GradientDenoiser([], L=1.0, state_device=device)
    with pytest.raises(ValueError, match=r"window must be a positive integer, got 0\."):
        GradientDenoiser([], L=1.0, window=0)
    with pytest.raises(ValueError, match="storage='bfloat16' to save memory"):
        GradientDenoiser([], L=1.0, state_dtype=torch.bfloat16)


def test_complex_parameters_are_kept_in_full() -> None:
    p = nn.Parameter(torch.ones(8, dtype=torch.complex64))
    denoiser = GradientDenoiser(p, L=1.0, window=4, storage="bfloat16")
    p.grad = torch.ones_like(p)
    assert denoiser.denoise()
    state = denoiser.state_dict()
    assert state["state"][0]["coco_point_0"].dtype == torch.complex64
    denoiser.load_state_dict(state)


@pytest.mark.parametrize("storage", [None, "bfloat16"])
@pytest.mark.parametrize("forget", ["drop", "fold"])
def test_a_window_on_another_device_is_the_same_window(storage: Any, forget: Any) -> None:
    options: Any = {"L": 0.7, "window": 4, "forget": forget, "storage": storage}
    near: list[Any] = list(parameters())
    far: list[Any] = [nn.Parameter(Elsewhere(p.detach().clone())) for p in near]
    here = GradientDenoiser(near, **options)
    there = GradientDenoiser(far, **options, state_device="cpu")
    draw = torch.Generator().manual_seed(2)
    for step in range(8):
        for p, q in zip(near, far, strict=True):
            p.data -= 0.1 * step
            q.detach().near.copy_(p.detach())
            p.grad = torch.randn(p.shape, generator=draw)
            q.grad = Elsewhere(p.grad.clone())
        assert here.denoise()
        assert there.denoise()
        for p, q in zip(near, far, strict=True):
            assert q.grad.device.type == "lazy"
            assert torch.equal(q.grad.near, p.grad)
    assert here.diagnostics().moved == pytest.approx(there.diagnostics().moved, rel=1e-12)
    assert there.diagnostics().moved > 0.0
    held = there.state_dict()["state"][0]["coco_point_0"]
    assert held.device.type == "cpu"


def test_a_step_has_a_noise_variance_of_its_own() -> None:
    """Two gradients at one point are averaged by their precisions."""
    p: Any = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = CocoOptimizer(torch.optim.SGD([p], lr=0.0), L=1.0, window=4)
    used: list[Any] = []
    optimizer.wrapped.register_step_pre_hook(lambda *_: used.append(p.grad.clone()))
    for value, variance in ((1.0, 1.0), (9.0, 3.0)):
        p.grad = torch.full_like(p, value)
        optimizer.step(noise_variance=variance)
    np.testing.assert_allclose(used[-1], (1.0 + 9.0 / 3.0) / (1.0 + 1.0 / 3.0), rtol=1e-9)
    with pytest.raises(ValueError, match="noise_variance must be positive"):
        optimizer.step(noise_variance=-1.0)
    assert optimizer.diagnostics().observations == 2
