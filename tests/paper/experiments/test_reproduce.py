"""The command as a whole: what it leaves behind, and what it does when it is stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coco_denoiser.paper import cli
from coco_denoiser.paper.experiments import logistic, reproduce, units
from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
from coco_denoiser.paper.problems import datasets

FILES = {"claims.json", "curves.csv", "figure.pdf", "figure.png", "run.json"}


def _run(out: Path, *arguments: str) -> int:
    return cli.main(["reproduce", "--quick", "--out", str(out), *arguments])


def test_an_experiment_leaves_its_files_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(tmp_path, "constraint-tightness", "--jobs", "1") == 0
    printed = capsys.readouterr().out
    folder = tmp_path / "constraint-tightness"
    assert {path.name for path in folder.iterdir() if path.is_file()} == FILES
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert (folder / "figure.pdf").read_bytes().startswith(b"%PDF")
    record = json.loads((folder / "claims.json").read_text("utf-8"))
    assert record["config"]["seed"] == 0
    assert [claim["verdict"] for claim in record["claims"]].count("holds") == 6
    # What is done and how long it takes, each stage, the verdict, and where the page is.
    first, *rest = printed.splitlines()
    assert "2 figures of the paper and 0 experiments of our own, at quick size" in first
    assert any(line.startswith("1 of 1: constraint-tightness: computed in ") for line in rest)
    assert "The paper: 6 of 7 statements confirmed, 1 contradicted." in rest
    assert any(line.split()[:3] == ["Figures", "7,", "8"] for line in rest)
    assert rest[-1].startswith(f"Page: {tmp_path / 'index.html'}")
    assert len(rest) <= 18
    assert "whatever L is" not in printed


def test_what_is_selected_without_names_with_all_and_by_the_first_words() -> None:
    assert all(experiment.numbers for experiment in reproduce.select([]))
    assert reproduce.select([], everything=True) == list(EXPERIMENTS.values())
    assert reproduce.select(["rivals"]) == [e for n, e in EXPERIMENTS.items() if "rivals" in n]
    figures = {number for experiment in reproduce.select([]) for number in experiment.numbers}
    assert figures == set(range(2, 15))


def test_an_interruption_says_what_is_kept_and_the_same_command_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save, name = units.Store.save, "mse-vs-distance"

    def interrupted(*arguments: Any) -> None:
        save(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(units.Store, "save", interrupted)
        assert _run(tmp_path, name, "--jobs", "1") == 130
    printed = capsys.readouterr()
    assert f"1 unit of work is kept in {tmp_path}" in printed.out
    assert printed.err == "coco-denoiser: interrupted\n"
    assert not list(tmp_path.rglob("claims.json"))
    (kept,) = tmp_path.rglob("*.npz")
    when = kept.stat().st_mtime_ns
    assert _run(tmp_path, name, "--jobs", "1") == 0
    assert kept.stat().st_mtime_ns == when
    assert len(list(tmp_path.rglob("*.npz"))) > 1


def test_same_seed_same_bytes_whatever_the_jobs_and_the_order(tmp_path: Path) -> None:
    names = ("mse-vs-distance", "constraint-tightness")
    assert _run(tmp_path / "a", *names, "--jobs", "1") == 0
    assert _run(tmp_path / "b", *reversed(names), "--jobs", "2") == 0
    for name in names:
        # The time it took, and of day, is never the same.
        for file in FILES - {"run.json"}:
            a, b = (tmp_path / out / name / file for out in "ab")
            assert a.read_bytes() == b.read_bytes(), (name, file)


_SLOW = """
import collections, functools, os, pathlib, time
from coco_denoiser.paper.experiments import units

def work(folder):
    (folder / str(os.getpid())).touch()
    time.sleep(100)

if __name__ == "__main__":  # two workers, of which one never gets a task
    call = functools.partial(work, pathlib.Path(os.environ["FOLDER"]))
    with units.workers(2) as executor:
        list(units.answers(collections.deque([call]), executor, 4))
"""


def test_children_do_not_outlive_a_kill_even_before_their_first_task(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(_SLOW)
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    # A session of its own, to know its children by.
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "FOLDER": str(tasks)},
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not list(tasks.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    before = _alive(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while _alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(before) > 2
    assert len(list(tasks.iterdir())) == 1
    assert _alive(process.pid) == []


def _alive(session: int) -> list[str]:
    """Return the states of a session's processes that are not zombies."""
    listed = subprocess.run(
        ["ps", "-s", str(session), "-o", "stat="], capture_output=True, text=True, check=False
    )
    return [state for state in listed.stdout.split() if not state.startswith("Z")]


def test_the_page_shows_what_is_missing_and_leaves_out_results_of_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # No folder, no network, and an empty cache.
    monkeypatch.delenv(datasets.DATA_VARIABLE, raising=False)
    monkeypatch.setattr(datasets, "LIBSVM_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    logistic.regression.cache_clear()
    old = tmp_path / "out" / "warm-start"
    old.mkdir(parents=True)
    (old / "claims.json").write_text('{"old": 1}')
    (old / "curves.csv").write_text("panel\n")
    assert _run(tmp_path / "out", "logistic-fourclass") == 2  # there is nothing else to run
    assert capsys.readouterr().err.count("\n") == 1
    names = ("logistic-fourclass", "constraint-tightness")
    assert _run(tmp_path / "out", *names, "--jobs", "1") == 0
    printed = capsys.readouterr().out
    assert printed.count("Missing: fourclass could not be downloaded") == 1
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert "Missing: fourclass could not be downloaded" in page
    assert 'src="constraint-tightness/figure.png"' in page
    assert 'id="warm-start"' not in page
