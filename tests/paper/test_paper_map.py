"""The paper map points at things that exist, and at every experiment."""

import os
import pkgutil
import re
from pathlib import Path

import pytest

from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
from coco_denoiser.paper.experiments.experiment import FIGURES

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "paper-map.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`([^`]+)`", TEXT)))
# The paper's source is not ours to pass on; where its place is named, its labels are checked.
SOURCE = os.environ.get("COCO_DENOISER_PAPER")
LABEL = re.compile(r"(fig|eq|sec|section|subsec|ass|theo|theorem|algorithm):|COCO_formulation")


def test_functions_exist() -> None:
    functions = [name for name in NAMED if name.startswith("coco_denoiser.")]
    assert functions
    for name in functions:
        assert callable(pkgutil.resolve_name(_with_colon(name))), name


def _with_colon(name: str) -> str:
    """Mark which part is the module: some functions have the name of theirs."""
    parts = name.split(".")
    modules = [part for part in parts[:-1] if part.islower()]
    return ".".join(modules) + ":" + ".".join(parts[len(modules) :])


@pytest.mark.parametrize("name", [name for name in NAMED if name.startswith("tests/")])
def test_tests_exist(name: str) -> None:
    path, test = name.split("::")
    assert re.search(rf"^def {test}\(", (ROOT / path).read_text("utf-8"), re.MULTILINE)


def test_every_experiment_of_the_paper_is_there_with_its_figures() -> None:
    rows = {
        name: row for row in TEXT.splitlines() for name in re.findall(r"^\|.*\| `([^`]+)` \|", row)
    }
    for name, experiment in EXPERIMENTS.items():
        for number in experiment.numbers:
            assert f"`fig:{list(FIGURES)[number - 1]}`" in rows[name], name


if SOURCE:

    def test_no_label_is_left_out_and_figures_are_in_the_papers_order() -> None:
        labels = re.findall(r"\\label\{([^}]*)\}", Path(str(SOURCE)).read_text("utf-8"))
        assert [label for label in labels if f"`{label}`" not in TEXT] == []
        assert [f"fig:{name}" for name in FIGURES] == [name for name in labels if name[:3] == "fig"]
        assert {name for name in NAMED if LABEL.match(name)} == set(labels)


def test_nothing_else_is_named() -> None:
    known = {*EXPERIMENTS, "docs/pictures.py", "coco-denoiser reproduce NAME"}
    rest = [
        name
        for name in NAMED
        if not name.startswith(("coco_denoiser.", "tests/")) and not LABEL.match(name)
    ]
    assert {*rest} <= known
