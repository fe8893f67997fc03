"""The example runs, draws, and passes a judgement on every optimizer."""

import runpy
from pathlib import Path

import pytest
import torch

from coco_denoiser.torch import CocoOptimizer

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch_logistic.py"


def test_the_example_compares_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "curves.png"
    main = runpy.run_path(str(EXAMPLE))["main"]
    main(["--output", str(picture), "--steps", "40", "--seeds", "2"])
    printed = capsys.readouterr().out
    assert picture.stat().st_size > 0
    for name in ("breast_cancer", "digits"):
        assert name in printed
    assert printed.count("with COCO") == 4


@pytest.mark.parametrize(
    ("name", "options", "rows", "said"),
    [
        # Ten methods at five rates; six of them denoise, judged by last and averaged weights.
        ("torch_networks.py", ["--tasks", "diabetes"], 10 * 5, {"worst": 12}),
        # Seven methods at seven rates, two of them without the schedule; five have averages.
        (
            "torch_inverse_rate.py",
            ["--tasks", "cancer", "--batches", "8"],
            (2 * 7 - 2) * 7,
            {"average": 5, "COCO": 2},
        ),
    ],
)
def test_the_networks_are_kept_and_not_trained_again(
    name: str,
    options: list[str],
    rows: int,
    said: dict[str, int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = tmp_path / "networks.csv"
    example = runpy.run_path(str(EXAMPLE.with_name(name)))
    arguments = ["--steps", "3", "--seeds", "1", *options, "--out", str(kept)]
    example["main"](arguments)
    printed = capsys.readouterr().out
    assert {word: printed.count(word) for word in said} == said
    lines = kept.read_text().splitlines()
    assert len(lines) == rows
    kept.write_text("\n".join(lines[:-1]) + "\n")  # one run is lost
    trained = []
    train = example["train"]

    def count(*given: object) -> object:
        trained.append(given)
        return train(*given)

    monkeypatch.setitem(example["main"].__globals__, "train", count)
    example["main"](arguments)
    assert len(trained) == 1
    assert capsys.readouterr().out == printed


def test_the_bound_of_the_example_is_that_of_the_optimizer() -> None:
    """What the example denoises by itself, several rates at a time, is what CocoOptimizer would."""
    example = runpy.run_path(str(EXAMPLE.with_name("torch_inverse_rate.py")))
    rates = torch.tensor([[0.5], [0.1]])
    together = example["Coco"](torch.tensor([[3.0, -2.0]] * 2), window=4)
    for noise in (noises := torch.randn(6, 2, generator=torch.Generator().manual_seed(0))):
        together.step(together.w + noise, rates)
    for rate, end in zip(rates, together.w, strict=True):
        p = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
        optimizer = CocoOptimizer(torch.optim.SGD([p], lr=rate.item()), L="1/lr", window=4)
        for noise in noises:
            p.grad = p.detach() + noise
            optimizer.step()
        torch.testing.assert_close(p.detach(), end)
