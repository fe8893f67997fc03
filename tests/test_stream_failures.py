"""What a stream does when a step falls short, fails, or is called twice at once."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser import Denoiser
from coco_denoiser._core import kernels
from coco_denoiser.window import Estimate
from tests.test_streaming import assert_same, follow, sgd


def test_a_step_that_falls_short_warns_and_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window holds it, whatever becomes of the warning; and it is solved once."""
    monkeypatch.delattr(coco.Cocoercive, "estimate")
    points, gradients = sgd(np.random.default_rng(1), 6, 3)
    strict, lenient = Denoiser(L=1.0, window=3), Denoiser(L=1.0, window=3)
    for denoiser in (strict, lenient):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            follow(denoiser, points[:3], gradients[:3])
        denoiser._model.tol, denoiser._model.max_iter = 1e-30, 1
    for x, g in zip(points[3:], gradients[3:], strict=True):
        with pytest.warns(coco.ConvergenceWarning, match="iteration limit: relative gap") as caught:
            lenient(x, g)
        assert caught[0].filename == __file__  # it points at the caller's line
        with pytest.raises(coco.ConvergenceWarning):  # an error, as pytest has it
            strict(x, g)
    np.testing.assert_array_equal(lenient.state_dict()["points"], points[3:])
    assert_same(strict, lenient.state_dict())
    assert strict.solution.status is coco.Status.ITERATION_LIMIT  # of what was returned


def test_a_second_caller_in_the_middle_of_a_step_is_refused() -> None:
    x, thread = np.ones(2), ThreadPoolExecutor(1)

    def busy() -> float:
        step, load = partial(denoiser, x, x), partial(denoiser.load_state_dict, state)
        look = partial(getattr, denoiser, "solution")
        for call in (step, denoiser.reset, load, look, denoiser.state_dict):
            for refused in (call, thread.submit(call).result):
                with pytest.raises(RuntimeError, match="one denoiser for each thread"):
                    refused()
        return 1.0

    denoiser = Denoiser(L=busy, window=3)
    state = denoiser.state_dict()
    with thread:
        for count in (1, 2):
            denoiser(count * x, x)
            assert len(denoiser) == count


@pytest.mark.parametrize("forget", ["drop", "fold"])
def test_after_an_exception_in_a_step_the_stream_is_empty(
    monkeypatch: pytest.MonkeyPatch, forget: Any
) -> None:
    points, gradients = sgd(np.random.default_rng(1), 8, 6)
    broken, new = (Denoiser(L=1.0, window=4, forget=forget) for _ in range(2))
    follow(broken, points, gradients)

    def fail(*_: object) -> Estimate:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kernels, "step", fail)
        with pytest.raises(KeyboardInterrupt):
            broken(points[0], gradients[0])
    assert len(broken) == 0
    narrow = points[:, :2], gradients[:, :2]
    np.testing.assert_array_equal(follow(broken, *narrow), follow(new, *narrow))
