"""What `python -m tests.mutate` would break is still there."""

import pytest

from tests.mutate import PACKAGE, ROOT
from tests.mutations import CHANGES, MUTATIONS, TESTS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.file}: {m.old.strip()[:40]}")
def test_every_mutation_finds_its_line(mutation: Mutation) -> None:
    assert mutation.old in (ROOT / PACKAGE / mutation.file).read_text("utf-8")
    assert mutation.new != mutation.old


def test_every_file_of_tests_is_there() -> None:
    assert TESTS.keys() == CHANGES.keys()
    for tests in TESTS.values():
        assert all((ROOT / "tests" / name).exists() for name in " ".join(tests).split())
