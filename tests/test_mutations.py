"""What `python -m tests.mutate` would break is still there."""

import pytest

from tests.mutate import MUTATIONS, PACKAGE, ROOT, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.file}: {m.old.strip()[:40]}")
def test_every_mutation_finds_its_line_and_its_tests(mutation: Mutation) -> None:
    assert mutation.old in (ROOT / PACKAGE / mutation.file).read_text("utf-8")
    assert mutation.new != mutation.old
    assert all((ROOT / "tests" / name).exists() for name in mutation.tests.split())
