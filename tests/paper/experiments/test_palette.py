"""One method looks alike in every picture."""

import pytest

from coco_denoiser.paper.experiments import palette
from coco_denoiser.paper.experiments.palette import styles


@pytest.mark.parametrize(
    "name", ["SGD", "Adam", "SGD+COCO_8", "Adam+COCO", "SGD+PRaveraging", "SGD+Gaussian_32"]
)
def test_a_method_looks_the_same_whatever_is_beside_it(name: str) -> None:
    crowd = ["SGD", "SGD+COCO_2", "something else", "SGD+DecreasingSS", name]
    assert styles(crowd, ())[name] == styles([name], ())[name] == palette.method(name)


def test_windows_have_one_look_whatever_they_are_put_into() -> None:
    assert len({palette.method(f"{base}+COCO_4") for base in ("SGD", "Adam", "STRSAGA")}) == 1
    assert palette.method("SGD+COCO_3") is None


def test_what_is_added_to_a_method_keeps_its_colour_and_has_a_dash_of_its_own() -> None:
    added = ("SGD, COCO_8", "SGD, Gaussian_32", "IGT, Gaussian_32")
    looks = styles(("SGD", "IGT", *added), frozenset(added))
    assert looks["SGD, COCO_8"].colour == looks["SGD, Gaussian_32"].colour == looks["SGD"].colour
    assert looks["SGD, Gaussian_32"].dash == looks["IGT, Gaussian_32"].dash
    assert len({looks[name].dash for name in ("SGD", "SGD, COCO_8", "SGD, Gaussian_32")}) == 3
