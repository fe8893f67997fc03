"""The laws of a stream, once, for every interface and every model.

The interfaces are NumPy, both paths of PyTorch, and Optax.
"""

import copy
import io
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import jax
import numpy as np
import pytest
import torch

import coco_denoiser as coco
from coco_denoiser.optax import coco_denoise, gaussian_denoise
from coco_denoiser.solution import Status
from coco_denoiser.torch import GradientDenoiser
from coco_denoiser.torch.passes import DEVICE, PASSES
from coco_denoiser.typing import Array, Float64
from tests.families import modelled, sgd
from tests.windows import batches

D, STEPS = 12, 9
SHAPES = ((5,), (2, 3), ())  # of the parts that a point of twelve entries is cut into


class NumPy:
    """One vector a point."""

    def __init__(self, **options: Any) -> None:
        self.denoiser: Any = coco.Denoiser(**modelled(**options))

    def __call__(self, x: Array, g: Array, v: float = 1.0) -> Any:
        try:
            return np.asarray(self.denoiser(x, g, noise_variance=v))
        except ValueError:
            return None

    def __len__(self) -> int:
        return len(self.denoiser)

    def reset(self) -> None:
        self.denoiser.reset()

    def save(self) -> Any:
        file = io.BytesIO()
        np.savez(file, **self.denoiser.state_dict())
        file.seek(0)
        with np.load(file, allow_pickle=False) as state:
            return dict(state)

    def load(self, state: Any) -> None:
        self.denoiser.load_state_dict(state)


class Torch(NumPy):
    """Three parameters a point."""

    def __init__(self, **options: Any) -> None:
        self.parameters = [torch.nn.Parameter(torch.zeros(s).double()) for s in SHAPES]
        self.denoiser = GradientDenoiser(self.parameters, **modelled(**options))

    def __call__(self, x: Array, g: Array, v: float = 1.0) -> Any:
        for p, point, gradient in zip(self.parameters, cut(x), cut(g), strict=True):
            p.grad = None
            p.data, p.grad = torch.from_numpy(point), torch.from_numpy(gradient)
        before = [p.grad for p in self.parameters]
        try:
            self.denoiser.denoise(noise_variance=v)
        except ValueError:
            return None
        assert all(p.grad is g for p, g in zip(self.parameters, before, strict=True))  # in place
        return np.concatenate([np.ravel(g) for g in before if g is not None])

    def save(self) -> Any:
        file = io.BytesIO()
        torch.save(self.denoiser.state_dict(), file)
        file.seek(0)
        return torch.load(file, weights_only=True)


@cache
def compiled(window: int, forget: Any, model: Any) -> Any:
    def update(g: Any, state: Any, x: Any, v: Any, L: Any = None, mu: Any = 0.0) -> Any:
        if model == "gaussian":
            tx = gaussian_denoise(L, window, tol=1e-12)
        else:
            tx = coco_denoise(L, window, mu=mu, forget=forget, tol=1e-12)
        return tx.update(g, state, x, noise_variance=v)

    return jax.jit(update)


class Optax:
    """A tree of three leaves a point, compiled once for every window."""

    state: Any = None
    count = 0

    def __init__(
        self, *, window: int, forget: Any = "drop", model: Any = "cocoercive", **bounds: Any
    ) -> None:
        self.settings, self.bounds = (window, forget, model), bounds

    def __call__(self, x: Array, g: Array, v: float = 1.0) -> Any:
        point = cut(x)
        if self.state is None:
            self.state = self._empty(x.dtype)
        now = {name: bound() if callable(bound) else bound for name, bound in self.bounds.items()}
        theta, self.state = compiled(*self.settings)(cut(g), self.state, point, v, **now)
        if self.state.status is Status.REFUSED:  # and passed through
            return None
        self.count += 1
        return np.concatenate([np.ravel(part) for part in theta])

    def _empty(self, dtype: Any) -> Any:
        window, forget, _ = self.settings
        return coco_denoise(1.0, window, forget=forget).init(cut(np.zeros(D, dtype)))

    def __len__(self) -> int:
        window, forget, _ = self.settings
        return min(self.count, 1 if window == 2 and forget == "fold" else window)

    def reset(self) -> None:
        self.state, self.count = None, 0

    def save(self) -> Any:
        return copy.deepcopy((jax.tree.map(np.asarray, self.state), self.count))

    def load(self, state: Any) -> None:
        self.state, self.count = state


def cut(x: Array) -> list[Any]:
    """Cut a vector into parts of three shapes."""
    return [np.array(x[:5]), np.array(x[5:11]).reshape(2, 3), np.array(x[11])]


@pytest.fixture(params=["numpy", "torch-host", "torch-device", "optax"])
def stream(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if request.param == "numpy":
        yield NumPy
    elif request.param == "optax":
        with jax.enable_x64(True):
            yield Optax
    else:
        if request.param == "torch-device":
            monkeypatch.setitem(PASSES, "cpu", DEVICE)
        yield Torch


def observations(seed: int, step: float = 0.7) -> tuple[Float64, Float64]:
    """Return the path of SGD on a quadratic with curvatures from 1/3 to 1."""
    return sgd(np.random.default_rng(seed), STEPS, D, step, start=3.0, sigma=3.0)


def follow(stream: Any, points: Array, gradients: Array) -> Float64:
    return np.array([stream(x, g) for x, g in zip(points, gradients, strict=True)])


WINDOWS = pytest.mark.parametrize("window", [2, 4])
SETTINGS = pytest.mark.parametrize(
    "settings",
    [
        {"L": 1.0, "window": 2},
        {"L": 1.0, "window": 4},
        {"L": 1.0, "window": 2, "forget": "fold"},
        {"L": 1.0, "window": 4, "forget": "fold"},
        {"model": "gaussian", "window": 4},
    ],
    ids=lambda each: "-".join(map(str, each.values())),
)


CHANGING = [1.0, 1.0, 0.3, 2.5, 2.5, 0.3, 10.0, 1.0, 0.5]


@WINDOWS
@pytest.mark.parametrize(
    ("given", "step"),
    [
        ({"L": 1.0, "mu": -1.0}, 0.7),
        ({"L": 1.0}, 0.01),
        ({"L": [1.0] * STEPS, "mu": 0.3}, 0.7),
        ({"L": CHANGING, "mu": [-0.2 * (k % 2) for k in range(STEPS)]}, 0.7),
        ({"L": [1.0] * STEPS, "forget": "fold"}, 0.3),
        ({"L": [1.0, 0.5, 2.0] * 3, "mu": -0.1, "forget": "fold"}, 0.3),
        ({"model": "gaussian"}, 0.7),
        ({"model": "gaussian"}, 0.01),
        ({"model": "gaussian", "L": [1e3] * 6 + [1e-3] * 3}, 0.7),  # a cap
    ],
)
def test_it_equals_a_batch_over_its_window_at_every_step(
    stream: Any, window: int, given: dict[str, Any], step: float
) -> None:
    k, (points, gradients) = 0, observations(0, step)
    points[6] = points[5]  # which is met again
    lists = {name: value for name, value in given.items() if isinstance(value, list)}
    functions = {name: lambda value=value: value[k] for name, value in lists.items()}
    some = stream(window=window, **given | functions)
    v = np.random.default_rng(0).uniform(0.2, 5.0, STEPS)
    expected = batches(points, gradients, v, window, tol=1e-12, **given)
    for k, (raw, batch) in enumerate(expected):
        theta = some(points[k], gradients[k], v[k])
        # Two points have a closed form.
        atol = 1e-9 if window == 2 or "model" in given else 1e-4
        np.testing.assert_allclose(theta, batch.gradients[-1], atol=atol)
        assert len(some) == (1 if window == 2 and "forget" in given else len(raw))
    if "L" in given or window > 2:  # two points alone teach the Gaussian model nothing
        assert not np.allclose(theta, gradients[-1], atol=1e-2)


@SETTINGS
@pytest.mark.parametrize("saved_after", [1, 6])
def test_a_restored_stream_goes_on_bit_for_bit(
    stream: Any, settings: dict[str, Any], saved_after: int
) -> None:
    k, (points, gradients) = 0, observations(2)
    if "L" in settings:
        settings = settings | {"L": lambda: 1.0 + k % 2}
    some, other = (stream(**settings) for _ in range(2))
    streams = [some]
    for k in range(STEPS):
        if k == saved_after:
            other.load(some.save())
            streams += [other, copy.deepcopy(some)]
        answers = [each(points[k], gradients[k]) for each in streams]
        for each, theta in zip(streams, answers, strict=True):
            assert len(each) == len(some)
            np.testing.assert_array_equal(theta, answers[0])


@SETTINGS
def test_what_is_refused_and_what_was_before_a_reset_leave_no_trace(
    stream: Any, settings: dict[str, Any]
) -> None:
    points, gradients = observations(3)
    some, other = (stream(**settings) for _ in range(2))
    follow(some, *observations(5))
    some.reset()
    for k, (x, g) in enumerate(zip(points, gradients, strict=True)):
        if k in (0, 5):
            for where, value in product((0, 1), (np.nan, np.inf, -np.inf)):
                bad = [x.copy(), g.copy()]
                bad[where][7] = value
                assert some(*bad) is None
                assert len(some) == len(other)
        np.testing.assert_array_equal(some(x, g), other(x, g))


def test_single_precision_comes_back_as_such_and_follows_double(stream: Any) -> None:
    points, gradients = (v.astype(np.float32) for v in observations(6))
    found = follow(stream(L=1.0, window=4), points, gradients)
    assert found.dtype == np.float32
    wide = (v.astype(np.float64) for v in (points, gradients))
    expected = follow(stream(L=1.0, window=4), *wide)
    assert expected.dtype == np.float64
    np.testing.assert_allclose(found, expected, atol=2e-3)


@WINDOWS
@pytest.mark.parametrize("forget", ["drop", "fold"])
def test_with_nothing_active_gradients_come_back_bit_for_bit(
    stream: Any, window: int, forget: str
) -> None:
    points, gradients = observations(7)
    gradients[5, 3] = -0.0
    found = follow(stream(L=1e9, window=window, forget=forget), points, gradients)
    assert found.tobytes() == gradients.tobytes()
