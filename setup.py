"""Build the compiled core twice from one source: for every x86-64 processor, and with AVX2."""

import importlib.util
import os
import platform
import sys
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).parent / "tools"))
import backend

CORE = "src/coco_denoiser/_core"
SOURCES = ("kernels.c", "lanes.h", "passes.h", "constants.h")
# Nothing may be fused or reordered, so that both builds give the same bits.
FLAGS = ["-O3", "-g0", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-Wno-psabi"]
AVX2 = ["-mavx2", "-mfma"]
if sys.platform == "win32":
    FLAGS, AVX2 = ["/O2", "/fp:precise"], ["/arch:AVX2"]
FLAGS += os.environ.get("COCO_DENOISER_CFLAGS", "").split()


class Build(build_ext):
    """Translate the core to C, and compile its builds side by side."""

    def finalize_options(self) -> None:
        """Use all processors."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        """Translate, find a compiler, compile."""
        from Cython.Build import cythonize  # noqa: PLC0415 - only where something is built

        core: Any = Extension("coco_denoiser._core.kernels", [f"{CORE}/kernels.pyx"])
        cythonize(core, force=True, quiet=True)
        if backend.compiler() is None:
            if importlib.util.find_spec("ziglang") is None:
                sys.exit(
                    "coco-denoiser needs a C compiler to build: install gcc, clang or ziglang."
                )
            os.environ["CC"] = f"{sys.executable} -m ziglang cc"
        super().run()


def build(name: str, flags: list[str]) -> Extension:
    """Return one build of the core."""
    return Extension(
        f"coco_denoiser._core.{name}",
        [f"{CORE}/{name}.c"],
        depends=[f"{CORE}/{source}" for source in SOURCES],
        include_dirs=[CORE],
        extra_compile_args=FLAGS + flags,
    )


builds = [build("baseline", [])]
if platform.machine().lower() in ("x86_64", "amd64"):
    # The baseline is then for old processors only: -O1 compiles it in two fifths of the time.
    quick = [] if sys.platform == "win32" else ["-O1"]
    builds = [build("baseline", quick), build("avx2", AVX2)]
setup(ext_modules=builds, cmdclass={"build_ext": Build})
