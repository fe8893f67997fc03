"""Hypothesis profiles, quick compilation, and tests whose libraries are not installed.

The profile `ci` draws the same cases every time, `explore` draws new ones. A test that needs a
library of an extra that is not installed is skipped with the remedy; `.ci/run` allows no skip.
JAX is told to compile quickly: each of its programs runs briefly here.
"""

import os
from collections.abc import Generator, Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("explore", settings.get_profile("ci"), derandomize=False)


class _Module(pytest.Module):
    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except self.CollectError as error:
            _skip_if_not_installed(error.__cause__)
            raise


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    """Import every file of tests by the rule above."""
    module: pytest.Module = _Module.from_parent(parent, path=module_path)
    return module


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, object, object]:
    """Make every fixture, and run every test, by the same rule."""
    try:
        return (yield)
    except ImportError as error:
        _skip_if_not_installed(error)
        raise


pytest_pyfunc_call = pytest_fixture_setup


def _skip_if_not_installed(error: BaseException | None) -> None:
    while error is not None:
        library = (getattr(error, "name", None) or "").partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and library and find_spec(library) is None:
            pytest.skip(
                f"{library} is not installed: pip install -e '.[test]'", allow_module_level=True
            )
        error = error.__cause__
