import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

from coco_denoiser.paper.problems import (
    DatasetError,
    breast_cancer,
    datasets,
    fourclass,
    mushrooms,
    signed_labels,
)

DATA = os.environ.get(datasets.DATA_VARIABLE)
MUSHROOMS_SHA256 = "f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538"


def test_rebuilt_mushrooms_written_as_libsvm_text_has_the_checksum_of_the_file() -> None:
    data = mushrooms()
    assert data.features.shape == (8124, 112)
    lines = []
    for row, label in zip(data.features, data.labels, strict=True):
        columns = "".join(f"{column + 1}:1 " for column in np.flatnonzero(row))
        lines.append(f"{1 if label < 0 else 2} {columns}\n")
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert digest == MUSHROOMS_SHA256


@pytest.mark.skipif(not DATA, reason=f"{datasets.DATA_VARIABLE} names no folder")
def test_the_file_is_read_as_by_scikit_learn() -> None:
    data = fourclass()
    features, labels = load_svmlight_file(str(Path(DATA or "") / data.name))
    assert np.array_equal(data.features, features.toarray())
    assert np.array_equal(data.labels, signed_labels(labels))


@pytest.mark.parametrize("labels", [[1, 2, 2], [0, 1, 1], [-1, 1, 1], [3.5, 7, 7]])
def test_any_two_classes_become_minus_and_plus_one(labels: list[float]) -> None:
    assert signed_labels(labels).tolist() == [-1, 1, 1]


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DatasetError, match=r"pip install 'coco-denoiser\[paper\]'"):
        breast_cancer()


CONTENT = b"-1 1:167.000000 2:178.000000 \n+1 1:162.000000 2:31.000000 \n"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """What can be downloaded, by way of an empty cache beside it."""
    monkeypatch.delenv(datasets.DATA_VARIABLE, raising=False)
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    monkeypatch.setattr(datasets, "FOURCLASS_SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "served" / "fourclass"
    file.parent.mkdir()
    file.write_bytes(CONTENT)
    handler = partial(SimpleHTTPRequestHandler, directory=str(file.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        monkeypatch.setattr(datasets, "LIBSVM_URL", f"http://127.0.0.1:{server.server_port}/")
        yield file
        server.shutdown()


def test_a_good_file_is_downloaded_once_and_a_damaged_one_again(
    served: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache" / "coco-denoiser"
    cache.mkdir(parents=True)
    (cache / "fourclass").write_bytes(CONTENT[:-5])
    for _ in range(2):
        np.testing.assert_array_equal(fourclass().features, [[167.0, 178.0], [162.0, 31.0]])
        served.unlink(missing_ok=True)
    assert [file.name for file in cache.iterdir()] == ["fourclass"]


def test_a_named_folder_comes_before_the_network(
    served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(served.parent))
    monkeypatch.setattr(datasets, "LIBSVM_URL", "http://127.0.0.1:9/")
    assert len(fourclass().labels) == 2


@pytest.mark.parametrize("failure", ["another file", "no network"])
def test_a_failed_download_names_the_remedy_and_leaves_nothing(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    if failure == "no network":
        monkeypatch.setattr(datasets, "LIBSVM_URL", "http://127.0.0.1:9/")
    else:
        served.write_bytes(b"<html>moved</html>")
    with pytest.raises(DatasetError, match=r"/fourclass .*set COCO_DENOISER_DATA to that folder"):
        fourclass()
    assert list((tmp_path / "cache" / "coco-denoiser").iterdir()) == []
