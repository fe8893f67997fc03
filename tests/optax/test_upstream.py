"""Optax's own common checks, from the installed wheel, over our transformation.

Their modules name the optimizers under test in a table at the top. They are read as they are,
with our optimizers in place of that table, so that the next release's checks are met as well.
"""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import optax
import pytest

from coco_denoiser.optax import coco_denoise, gaussian_denoise
from tests.optax.streams import printed_with_devices

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install -e '.[test]'")
pytestmark = pytest.mark.filterwarnings("default")  # theirs are none of our business
CHECKS = "optax._src.alias_test"


def borrowed(name: str, table: str, ours: Any) -> ModuleType:
    """Return a module of Optax with another value of a name that it sets at its top."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text("utf-8"))
    found = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == table
    ]
    assert len(found) == 1, f"{name} no longer sets {table} once"
    found[0].value = ast.copy_location(ast.Name("OURS", ast.Load()), found[0].value)
    module = ModuleType(name)
    vars(module)["OURS"] = ours
    exec(compile(tree, spec.origin, "exec"), vars(module))
    return module


def coco_sgd(learning_rate: float, L: float | None = None) -> optax.GradientTransformation:
    denoised = gaussian_denoise(window=3) if L is None else coco_denoise(L, 3)
    return optax.chain(denoised, optax.trace(0.9), optax.scale_by_learning_rate(learning_rate))


class TestAlias(
    borrowed(  # type: ignore[misc]
        CHECKS,
        "_OPTIMIZERS_UNDER_TEST",
        ({"opt_name": "coco_sgd", "opt_kwargs": {"learning_rate": 3e-4}},),
    ).AliasTest
):
    @pytest.fixture(autouse=True)
    def _known_to_optax(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("optax._src.alias.coco_sgd", coco_sgd, raising=False)


for check in [name for name in dir(TestAlias) if name.startswith("test_explicit_dtype")]:
    setattr(TestAlias, check, None)  # they have a table of their own, with Optax's optimizers


def test_sharded_states_keep_their_types() -> None:
    """In a process of its own, as it needs eight devices from the start."""
    program = (
        "import unittest, optax; from tests.optax.test_upstream import borrowed, coco_sgd\n"
        "ours = {'gaussian': coco_sgd(1.0), 'cocoercive': coco_sgd(1.0, 1.0)}\n"
        "module = borrowed('optax._src.sharding_test', 'OPTIMIZERS', ours)\n"
        "tests = unittest.defaultTestLoader.loadTestsFromTestCase(module.ShardingTest)\n"
        "done = unittest.TextTestRunner().run(tests)\n"
        "raise SystemExit(0 if done.wasSuccessful() and done.testsRun >= 6 else 1)\n"
    )
    printed_with_devices(8, program)
