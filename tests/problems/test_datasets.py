import hashlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

from coco_denoiser.problems import (
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


def test_a_named_folder_must_exist_and_hold_the_file_that_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path / "absent"))
    with pytest.raises(DatasetError, match=datasets.DATA_VARIABLE):
        fourclass()
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path))
    (tmp_path / "fourclass").write_text("1 1:1\n2 1:0\n")
    with pytest.raises(DatasetError, match="not LIBSVM's fourclass"):
        fourclass()


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DatasetError, match=r"pip install 'coco-denoiser\[experiments\]'"):
        breast_cancer()
