# One stub for both builds: they differ in nothing but speed.

from coco_denoiser._core import kernels as kernels

avx2 = kernels
baseline = kernels
