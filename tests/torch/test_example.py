"""The example runs, draws, and passes a judgement on every optimizer."""

import runpy
from pathlib import Path

import pytest

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


def test_the_networks_are_kept_and_not_trained_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "networks.csv"
    example = runpy.run_path(str(EXAMPLE.with_name("torch_networks.py")))
    arguments = ["--steps", "3", "--seeds", "1", "--tasks", "diabetes", "--out", str(kept)]
    example["main"](arguments)
    printed = capsys.readouterr().out
    assert printed.count("worst") == 12  # six denoised methods, last weights and average
    lines = kept.read_text().splitlines()
    assert len(lines) == 10 * 5
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
