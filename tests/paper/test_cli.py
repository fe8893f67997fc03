"""The command line: what it prints, what it leaves behind, and how it refuses."""

import errno
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from coco_denoiser import denoise, solve
from coco_denoiser.paper import cli
from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS

INSTANT = ["reproduce", "constraint-tightness", "--jobs", "1"]


@pytest.fixture
def observed(tmp_path: Path) -> Path:
    """Three observations, of which two disagree."""
    path = tmp_path / "seen.csv"
    path.write_text("x1,g1\n0,0\n1,5\n2,2\n")
    return path


def test_list_describes_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    printed = capsys.readouterr().out
    for experiment in EXPERIMENTS.values():
        numbers = ", ".join(map(str, experiment.numbers))
        assert f"{experiment.name}  (" in printed
        assert experiment.summary in printed
        assert (f"{numbers})" if numbers else "(beyond the paper)") in printed
    assert len(printed.splitlines()) == 3 * len(EXPERIMENTS)


@pytest.mark.parametrize("mu", [-0.5, 0.25])
def test_denoise_writes_the_answer_and_prints_its_certificate(
    observed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], mu: float
) -> None:
    out, given = tmp_path / "theta.csv", [str(observed), "--L", "1", f"--mu={mu}"]
    expected = denoise([[0.0], [1.0], [2.0]], [[0.0], [5.0], [2.0]], L=1.0, mu=mu)
    for target, said in (([], "not saved"), (["-o", str(out)], str(out))):
        assert cli.main(["denoise", *given, *target]) == 0
        printed = capsys.readouterr().out
        for word in ("3 in 1 dimensions", "solved", "relative gap", "worst violation", said):
            assert word in printed
        assert out.exists() == bool(target)
    np.testing.assert_array_equal(np.loadtxt(out, skiprows=1, ndmin=2), expected)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "COMMAND"),
        (["unknown"], "'unknown'"),
        (["reproduce", "figure-1"], "'figure-1'"),
        (["reproduce", "--jobs", "0"], "--jobs"),
        (["explore", "--port", "65536"], "0 to 65535"),
        (["reproduce", "--seed", "-1"], "--seed"),
        (["reproduce", "--seed", "many"], "'many'"),
        (["reproduce", "--window", "3"], "--window"),
        (["list", "more"], "more"),
        (["denoise"], "FILE"),
        (["denoise", "seen.csv", "-o", "out.csv"], "--L"),
        (["denoise", "seen.csv"], "--model gaussian"),
        (["denoise", "seen.csv", "--model", "gaussian", "--mu", "1"], "mu"),
        (["denoise", "seen.csv", "--L", "one", "-o", "out.csv"], "'one'"),
        (["denoise", "seen.csv", "--L", "0", "-o", "out.csv"], "L must be positive"),
        (["denoise", "seen.csv", "--L", "1", "--mu", "2", "-o", "out.csv"], "mu must be less"),
        (["denoise", "nan.csv", "--L", "1", "-o", "out.csv"], "finite"),
        (["denoise", "nowhere.csv", "--L", "1", "-o", "out.csv"], "nowhere.csv"),
        (["denoise", "seen.csv", "--L", "1", "-o", "out.txt"], "out.txt"),
        (["denoise", "seen.csv", "--L", "1", "-o", "./seen.csv"], "choose another"),
        (["denoise", "seen.csv", "--L", "1", "-o", "no/such/out.csv"], "no/such/out.csv"),
        (["denoise", "seen.csv", "--L", "1", "-o", f"{'a' * 300}.csv"], "name too long"),
        (["denoise", "seen.csv", "--L", "1", "-o", "seen.csv/out.csv"], "seen.csv/out.csv"),
    ],
)
def test_bad_input_ends_with_one_line_and_exit_code_2(
    arguments: list[str],
    named: str,
    observed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out.csv").write_text("mine")
    (tmp_path / "nan.csv").write_text("x1,g1\n0,nan\n")
    assert cli.main(arguments) == 2
    assert named in _one_line(capsys)
    assert {path.name for path in tmp_path.iterdir()} == {observed.name, "out.csv", "nan.csv"}
    assert (tmp_path / "out.csv").read_text() == "mine"


def test_the_gaussian_model_needs_no_bound_but_must_be_named(
    observed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "theta.npz"
    assert cli.main(["denoise", str(observed), "--model", "gaussian", "-o", str(out)]) == 0
    expected = solve([[0.0], [1.0], [2.0]], [[0.0], [5.0], [2.0]], model="gaussian")
    with np.load(out) as content:
        np.testing.assert_array_equal(content["gradients"], expected.gradients)
        np.testing.assert_array_equal(content["std"], expected.std)
        assert "weights" not in content.files or np.isfinite(content["weights"]).all()
    printed = capsys.readouterr().out
    assert "standard error" in printed
    assert "nan" not in printed
    assert "inf" not in printed


def test_a_folder_that_may_not_be_searched_is_one_line(
    observed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def forbidden(self: Path, **_: object) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "exists", forbidden)  # root may search everything
    assert cli.main(["denoise", str(observed), "--L", "1", "-o", str(tmp_path / "o.csv")]) == 2
    assert "permission denied" in _one_line(capsys)


def test_a_folder_that_is_a_file_is_refused_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for out in (taken, taken / "below"):
        assert cli.main([*INSTANT, "--out", str(out)]) == 2
        assert str(out) in _one_line(capsys)
    assert taken.read_text() == "mine"


def test_a_failed_write_keeps_the_old_figure_and_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "constraint-tightness"
    folder.mkdir()
    (folder / "figure.png").write_bytes(b"old")

    def full_disk(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full_disk)
    assert cli.main([*INSTANT, "--out", str(tmp_path)]) == 2
    complaint = capsys.readouterr().err
    assert "no space left" in complaint
    assert complaint.count("\n") == 1
    assert (folder / "figure.png").read_bytes() == b"old"
    assert {path.name for path in folder.iterdir()} == {
        "figure.png", "curves.csv", "run.json", "units",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("command", "library", "extra"),
    [
        (INSTANT, "matplotlib.figure", "paper"),
        (INSTANT, "joblib", "paper"),
        (["list"], "scipy", "paper"),
        (["reproduce", "--quick"], "scipy", "paper"),
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
    output: str, code: int, said: str, observed: Path, tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = f"{sys.executable} -m coco_denoiser.paper.cli denoise {observed} --L 1 -o theta.csv"
    redirected = output.replace("| unread", f">&{writer}")
    done = subprocess.run(
        ["bash", "-c", f"{command} {redirected}"],
        cwd=tmp_path,
        pass_fds=[writer],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert done.returncode == code
    assert done.stderr == (f"coco-denoiser: error: {said}\n" if said else "")
    assert (tmp_path / "theta.csv").read_text().startswith("theta1\n")


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
