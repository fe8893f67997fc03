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
