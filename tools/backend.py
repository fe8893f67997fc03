"""setuptools, with a C compiler from the package index where the machine has none."""

import os
import shutil
import sys
import sysconfig
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403


def compiler() -> str | None:
    """Return the command of the C compiler, or None if the machine has none."""
    if sys.platform == "win32":
        return "MSVC"  # which setuptools finds by itself
    wanted = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return wanted if shutil.which(wanted.split()[0]) else None


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return what building needs beyond pyproject.toml."""
    found: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    return found if compiler() else [*found, "ziglang>=0.13"]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Return what building in place needs beyond pyproject.toml."""
    return get_requires_for_build_wheel(config_settings)
