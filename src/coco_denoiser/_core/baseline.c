/* The core for every processor. */
#define PyInit_kernels PyInit_baseline
#include "kernels.c"
