"""What the primal-dual method does besides solving, which the contract tests."""

import numpy as np
import pytest

from coco_denoiser.solvers import interior_point
from tests.families import FAMILIES


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is not allowed is not begun; the best so far comes back."""
    rng = np.random.default_rng(0)
    window = FAMILIES["path with step 0.7"](rng, 16, 5).reduced()
    _, usual = interior_point.solve(window, tol=1e-9, max_iter=400)
    monkeypatch.setattr(interior_point, "ALLOWED", 1e-3)
    lam, steps = interior_point.solve(window, tol=1e-9, max_iter=400)
    assert steps == 0 < usual
    assert np.isfinite(lam).all()
