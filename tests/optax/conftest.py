"""Compile quickly: most of the time of these tests is compilation, and each program runs briefly.

It has no effect where JAX has been used before.
"""

import os

_QUICK = "--xla_backend_optimization_level=0"
if _QUICK not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_QUICK}".strip()
