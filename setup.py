"""Build the compiled core twice from one source: for every x86-64 processor, and with AVX2."""

import platform
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

CORE = "src/coco_denoiser/_core"
MSVC = sys.platform == "win32"
# Nothing may be fused or reordered, so that both builds give the same bits.
FLAGS = ["/O2", "/fp:precise"]
if not MSVC:
    FLAGS = ["-O3", "-g0", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-Wno-psabi"]
AVX2 = ["/arch:AVX2"] if MSVC else ["-mavx2", "-mfma"]


def extension(name: str, flags: list[str]) -> Extension:
    """Return one build of the core."""
    return Extension(
        f"coco_denoiser._core.{name}",
        [f"{CORE}/{name}.c"],
        depends=[f"{CORE}/kernels.c", f"{CORE}/lanes.h", f"{CORE}/passes.h"],
        include_dirs=[CORE],
        extra_compile_args=FLAGS + flags,
    )


cythonize(Extension("coco_denoiser._core.kernels", [f"{CORE}/kernels.pyx"]), force=True)
extensions = [extension("baseline", [])]
if platform.machine().lower() in ("x86_64", "amd64"):
    extensions.append(extension("avx2", AVX2))
setup(ext_modules=extensions)
