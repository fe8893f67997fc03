"""The compiled core, in the build that suits this processor: all functions of `kernels.pyx`."""

try:
    from coco_denoiser._core import baseline as kernels

    if kernels.has_avx2():
        from coco_denoiser._core import avx2 as kernels
except ImportError as error:
    raise ImportError(
        "coco_denoiser was not compiled for this Python. Install it again: `pip install .` in "
        f"its folder needs a C compiler, a wheel does not. ({error})"
    ) from error
