"""The command line: what it prints, what it leaves behind, and how it refuses."""

import errno
import sys
from importlib import metadata
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from coco_denoiser import cli

PNG = b"\x89PNG\r\n\x1a\n"


def test_demo_prints_a_table_and_writes_one_whole_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "made" / "on the way"
    assert cli.main(["demo", "--runs", "2", "--out", str(out)]) == 0
    printed, complaints = capsys.readouterr()
    rows = [line.split()[0] for line in printed.splitlines() if line.startswith("SGD")]
    assert rows == ["SGD", "SGD+COCO_2", "SGD+COCO_4", "SGD+COCO_8", "SGD+COCO_16"]
    assert complaints == ""
    assert [path.name for path in out.iterdir()] == ["demo.png"]
    assert (out / "demo.png").read_bytes().startswith(PNG)
    assert str(out / "demo.png") in printed


def test_demo_depends_on_the_seed_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(seed: str, folder: str) -> tuple[str, bytes]:
        out = tmp_path / folder
        assert cli.main(["demo", "--runs", "2", "--seed", seed, "--out", str(out)]) == 0
        printed = capsys.readouterr().out.replace(str(out), "")
        return printed, (out / "demo.png").read_bytes()

    first = run("7", "a")
    assert run("7", "b") == first
    assert run("8", "c")[1] != first[1]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "COMMAND"),
        (["unknown"], "'unknown'"),
        (["demo", "--runs", "0"], "--runs"),
        (["demo", "--runs", "-3"], "'-3'"),
        (["demo", "--runs", "2.5"], "'2.5'"),
        (["demo", "--runs", "many"], "'many'"),
        (["demo", "--seed", "-1"], "--seed"),
        (["demo", "--window", "3"], "--window"),
    ],
)
def test_bad_arguments_end_with_one_line_and_exit_code_2(
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


def test_a_folder_that_is_a_file_is_refused_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for out in (taken, taken / "below"):
        assert cli.main(["demo", "--out", str(out)]) == 2
        assert str(out) in _one_line(capsys)
    assert taken.read_text() == "mine"


def test_a_failed_write_keeps_the_old_picture_and_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demo.png").write_bytes(b"old")

    def full_disk(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full_disk)
    assert cli.main(["demo", "--runs", "1", "--out", str(tmp_path)]) == 2
    assert "no space left" in _one_line(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["demo.png"]
    assert (tmp_path / "demo.png").read_bytes() == b"old"


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert cli.main(["demo", "--out", str(tmp_path)]) == 2
    assert "coco-denoiser[experiments]" in _one_line(capsys)
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("coco_denoiser.experiments.demo.run", interrupt)
    assert cli.main(["demo", "--out", str(tmp_path)]) == 130
    assert "interrupted" in _one_line(capsys)


def test_the_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        cli.main(["--version"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out.split() == ["coco-denoiser", metadata.version("coco-denoiser")]


def test_the_installed_command_is_this_one() -> None:
    (command,) = metadata.entry_points(group="console_scripts", name="coco-denoiser")
    assert command.load() is cli.main


def _one_line(capsys: pytest.CaptureFixture[str]) -> str:
    printed, complaint = capsys.readouterr()
    assert printed == ""
    assert complaint.startswith("coco-denoiser: ")
    assert complaint.count("\n") == 1
    return complaint
