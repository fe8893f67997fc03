"""Trainers that were not written for us: Lightning, Accelerate, torch.compile."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from coco_denoiser.torch import CocoOptimizer, GradientDenoiser
from tests.torch.problems import adam

STEPS = 12


def data() -> DataLoader[tuple[torch.Tensor, ...]]:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(4 * STEPS, 5, generator=draw), torch.randn(4 * STEPS, 1, generator=draw)
    return DataLoader(TensorDataset(x, y), batch_size=4)


def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(5, 1)


def coco(module: nn.Module) -> CocoOptimizer:
    return adam(module.parameters(), L=0.5)


def by_hand(steps: int = STEPS) -> tuple[torch.Tensor, CocoOptimizer]:
    module = layer()
    optimizer = coco(module)
    for _, (x, y) in zip(range(steps), data(), strict=False):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.mse_loss(module(x), y))
        optimizer.step()
    return module.weight.detach(), optimizer


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = layer()

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        return nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        optimizer = coco(self.layer)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10**6)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers, and its own imports
def test_lightning_trains_saves_and_resumes(tmp_path: Path) -> None:
    shown = "enable_progress_bar", "enable_model_summary", "logger"
    quiet: Any = {"default_root_dir": tmp_path, "accelerator": "cpu", **dict.fromkeys(shown, False)}
    expected, optimizer = by_hand()
    assert optimizer.diagnostics().weights[-1] < 1.0
    saved: Any = {"ckpt_path": tmp_path / "half.ckpt", "weights_only": True}
    ends = []
    for epochs, start in ((1, {}), (2, {}), (2, saved)):
        module, trainer = Regression(), lightning.Trainer(max_epochs=epochs, devices=1, **quiet)
        trainer.fit(module, data(), **start)
        ends.append(module.layer.weight.detach())
        if epochs == 1:
            trainer.save_checkpoint(saved["ckpt_path"])
    torch.testing.assert_close(ends[0], expected)
    assert torch.equal(*ends[1:])


def test_accelerate_prepares_steps_saves_and_loads(tmp_path: Path) -> None:
    accelerator, module = Accelerator(cpu=True), layer()
    optimizer = coco(module)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10**6)
    prepared: Any = accelerator.prepare(module, optimizer, data(), scheduler)
    model, wrapped, loader, rate = prepared
    for start in (0, STEPS // 2):
        if start:
            accelerator.load_state(str(tmp_path / "half"))
        for number, (x, y) in enumerate(loader):
            if number < start:
                continue
            if number == STEPS // 2 and not start:
                accelerator.save_state(str(tmp_path / "half"))
            wrapped.zero_grad()
            accelerator.backward(nn.functional.mse_loss(model(x), y))
            accelerator.clip_grad_norm_(model.parameters(), 1e9)
            wrapped.step()
            rate.step()
        torch.testing.assert_close(accelerator.unwrap_model(model).weight.detach(), by_hand()[0])
    assert len(optimizer.denoiser) == 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_whole_train_step_is_compiled_around_the_denoising() -> None:
    """Tracing stops at the denoiser, whose functions it cannot look into."""
    torch.compiler.reset()
    module, tracing = layer(), []
    optimizer = coco(module)

    def bound(*_: object) -> Any:
        tracing.append(torch.compiler.is_compiling())
        return 1.0

    denoiser = GradientDenoiser(module.parameters(), L=bound, window=1)
    optimizer.wrapped.register_step_pre_hook(lambda *_: bound() and None)

    @torch.compile(backend="aot_eager")
    def train(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.mse_loss(module(x), y))
        denoiser.denoise()  # a window of one changes nothing
        optimizer.step()

    with torch._dynamo.config.patch(error_on_recompile=True):
        for x, y in data():
            train(x, y)
    torch.testing.assert_close(module.weight.detach(), by_hand()[0])
    assert tracing == [False] * 2 * STEPS
