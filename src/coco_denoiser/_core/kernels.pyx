# cython: language_level=3, cdivision=True, infer_types=True
# cython: freethreading_compatible=True
"""The compiled core. One module of several parts, so that a part can call another at no cost.

It is built twice from this source, for every processor and for those with AVX2; `__init__.py`
chooses at import. Both give the same bits: nothing is fused or reordered, and sums are added up
in a fixed number of lanes (`lanes.h`).

Functions that are `noexcept nogil` work on plain C memory without the GIL and check nothing. Those
that begin with `def` are the edge: they check types and sizes, once.
"""

include "lanes.pxi"
include "memory.pxi"
include "passes.pxi"
include "laplacian.pxi"
include "tables.pxi"
include "workspace.pxi"
include "certificate.pxi"
include "line.pxi"
include "newton.pxi"
include "newton_model.pxi"
include "gradients.pxi"
include "barrier_system.pxi"
include "barrier.pxi"
include "groups.pxi"
include "solve.pxi"
include "step.pxi"
include "residuals.pxi"
include "batch.pxi"
include "fdpg.pxi"
