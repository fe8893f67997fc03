"""The data sets of the paper's experiments, found, downloaded or rebuilt.

LIBSVM's file of fourclass is kept in the folder that the environment variable COCO_DENOISER_DATA
names, or else in a cache of the user's. Where its SHA-256 is not that of the file that is meant, it
is downloaded. Mushrooms needs no file: the public table it was made from is part of this package.
"""

import csv
import gzip
import importlib
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from coco_denoiser.typing import Array, ArrayLike, Int64

DATA_VARIABLE = "COCO_DENOISER_DATA"
LIBSVM_URL = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
FOURCLASS_SHA256 = "7b36a3beaa482bd982b8a601a26b7e74ffc39e00a825b5b501bd17b34a56e48f"
_TIMEOUT_SECONDS = 30.0

# The letters of the values of each attribute, in the order of the UCI table; these make the 112
# columns of LIBSVM's mushrooms. Stalk-root, which has missing values, is left out.
_MUSHROOM_VALUES = (
    "cbfksx", "ysgf", "cbegnpruwy", "tf", "acfmlnpsy", "af", "cw", "bn", "beghkonpruwy", "et",
    "yskf", "yskf", "cbegonpwy", "cbegonpwy", "p", "yown", "ton", "pnelf", "bhkonruwy", "acnsvy",
    "dgmlpuw",
)  # fmt: skip


class DatasetError(RuntimeError):
    """A data set is not available; the message says what to do about it."""


class Dataset(NamedTuple):
    """A binary classification task: features (n, d) and labels (n,) of -1 and +1."""

    name: str
    features: Array
    labels: Array


def fourclass() -> Dataset:
    """Return LIBSVM's fourclass: n=862, d=2, features as in the file, from 0 to about 200.

    Raises:
        DatasetError: if the file is not there and cannot be downloaded.
    """
    # Lines of `label 1:value 2:value`, as the checksum says.
    rows = [line.split() for line in _fourclass().splitlines()]
    table = np.array([[entry.rpartition(":")[2] for entry in row] for row in rows], float)
    return Dataset("fourclass", table[:, 1:], signed_labels(table[:, 0]))


def mushrooms() -> Dataset:
    """Return LIBSVM's mushrooms: n=8124, d=112, binary features; poisonous is -1, edible +1.

    The same numbers, to the last byte of LIBSVM's file, are rebuilt from the table in this package.
    """
    packed = resources.files("coco_denoiser.paper.problems") / "data" / "mushroom.csv.gz"
    text = gzip.decompress(packed.read_bytes()).decode("ascii")
    header, *rows = csv.reader(text.splitlines())
    classes, *attributes = np.delete(rows, header.index("Stalk-root"), axis=1).T
    columns = [
        attribute[:, np.newaxis] == np.array(list(values))
        for attribute, values in zip(attributes, _MUSHROOM_VALUES, strict=True)
    ]
    features = np.hstack(columns).astype(np.float64)
    return Dataset("mushrooms", features, np.where(classes == "e", 1.0, -1.0))


def breast_cancer() -> Dataset:
    """Return scikit-learn's breast cancer data: n=569, d=30; malignant is -1, benign +1.

    The columns are centred and scaled to unit variance: as they come, their scales differ by a
    factor of 10^5. The classes are all but separable: fit them with regularization.
    """
    bunch = _require("sklearn.datasets", "scikit-learn").load_breast_cancer()
    features = np.asarray(bunch.data, dtype=np.float64)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    return Dataset("breast_cancer", features, signed_labels(bunch.target))


def digits() -> tuple[Array, Int64]:
    """Return scikit-learn's digits: 1797 images of 64 pixels from 0 to 16, and their classes."""
    bunch = _require("sklearn.datasets", "scikit-learn").load_digits()
    return np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target, dtype=np.int64)


def signed_labels(labels: ArrayLike) -> Array:
    """Map two classes, however they are numbered, to -1 (the smaller) and +1 (the larger).

    Examples:
        >>> from coco_denoiser.paper.problems import signed_labels
        >>> signed_labels([1, 2, 2])
        array([-1.,  1.,  1.])
    """
    values = np.asarray(labels)
    classes = np.unique(values)
    if len(classes) != 2:
        raise ValueError(f"labels must hold exactly two classes, got {len(classes)}: {classes[:5]}")
    return np.where(values == classes[1], 1.0, -1.0)


def _fourclass() -> str:
    """Return the text of the file, which is downloaded if it is missing or damaged."""
    pooch = _require("pooch", "pooch")
    pooch.get_logger().setLevel("WARNING")
    files = pooch.create(
        pooch.os_cache("coco-denoiser"),
        LIBSVM_URL,
        env=DATA_VARIABLE,
        registry={"fourclass": FOURCLASS_SHA256},
    )
    # Read at once, the file being small: a refused stream would leave its socket open.
    downloader = pooch.HTTPDownloader(timeout=_TIMEOUT_SECONDS, stream=False)
    try:
        return Path(files.fetch("fourclass", downloader=downloader)).read_text("ascii")
    except (OSError, ValueError) as error:
        # Pooch raises ValueError for a wrong hash; what requests raises is an OSError.
        reason = type(error).__name__ if isinstance(error, OSError) else "another file is there"
        raise DatasetError(
            f"fourclass could not be downloaded from {LIBSVM_URL}fourclass ({reason}); put the "
            f"file into a folder and set {DATA_VARIABLE} to that folder."
        ) from error


def _require(module: str, package: str) -> ModuleType:
    """Import what only the experiments need, or name the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DatasetError(
            f"{package} is needed for this data set; run: "
            "python -m pip install 'coco-denoiser[paper]'"
        ) from error
