/* The core for processors with AVX2, by its flags in setup.py. */
#define PyInit_kernels PyInit_avx2
#include "kernels.c"
