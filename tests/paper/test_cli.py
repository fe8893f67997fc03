"""The command line: what it prints, what it leaves behind, and how it refuses."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from coco_denoiser.paper import cli
from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS


def test_list_describes_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    printed = capsys.readouterr().out
    for experiment in EXPERIMENTS.values():
        numbers = ", ".join(map(str, experiment.numbers))
        assert f"{experiment.name}  (" in printed
        assert experiment.summary in printed
        assert (f"{numbers})" if numbers else "(beyond the paper)") in printed
    assert len(printed.splitlines()) == 3 * len(EXPERIMENTS)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "COMMAND"),
        (["unknown"], "'unknown'"),
        (["reproduce", "figure-1"], "'figure-1'"),
        (["reproduce", "rival"], "'rival'"),
        (["reproduce", "sythetic-sgd"], "did you mean synthetic-sgd"),
        (["reproduce", "--jobs", "0"], "--jobs"),
        (["explore", "--port", "65536"], "0 to 65535"),
        (["reproduce", "--seed", "-1"], "--seed"),
        (["reproduce", "--seed", "many"], "'many'"),
        (["reproduce", "--window", "3"], "--window"),
        (["list", "more"], "more"),
    ],
)
def test_bad_input_ends_with_one_line_and_exit_code_2(
    arguments: list[str],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    assert named in _one_line(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["taken", "taken/below"])
def test_a_folder_that_is_a_file_is_refused_and_left_alone(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("mine")
    out = str(tmp_path / name)
    assert cli.main(["reproduce", "constraint-tightness", "--jobs", "1", "--out", out]) == 2
    assert out in _one_line(capsys)
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.parametrize(
    ("command", "library", "extra"),
    [
        (["reproduce", "--quick"], "matplotlib.figure", "paper"),
        (["explore"], "bokeh.embed", "explore"),
    ],
)
def test_without_a_library_the_extra_is_named(
    command: list[str],
    library: str,
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in [name for name in sys.modules if name.startswith("coco_denoiser.paper.ex")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    assert cli.main(command) == 2
    assert f"coco-denoiser[{extra}]" in _one_line(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("output", "code", "said"),
    [
        (">&-", 0, ""),
        pytest.param(
            *(">/dev/full", 2, "cannot write to standard output: no space left on device"),
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has one"),
        ),
        ("| unread", 141, ""),
    ],
)
def test_whatever_becomes_of_standard_output_there_is_no_traceback(
    output: str, code: int, said: str
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = f"{sys.executable} -m coco_denoiser.paper.cli list"
    redirected = output.replace("| unread", f">&{writer}")
    done = subprocess.run(
        ["bash", "-c", f"{command} {redirected}"],
        pass_fds=[writer],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert done.returncode == code
    assert done.stderr == (f"coco-denoiser: error: {said}\n" if said else "")


def test_the_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        cli.main(["--version"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out.split() == ["coco-denoiser", metadata.version("coco-denoiser")]


def _one_line(capsys: pytest.CaptureFixture[str]) -> str:
    printed, complaint = capsys.readouterr()
    assert printed == ""
    assert complaint.startswith("coco-denoiser: ")
    assert complaint.count("\n") == 1
    return complaint
