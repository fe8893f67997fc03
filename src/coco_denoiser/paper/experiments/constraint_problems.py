"""The problems of the experiment `constraints`: a smooth f with noisy gradients, and a map.

    argmin f(x) + psi(x),    psi a penalty, or a set: 0 in it and infinite outside

Every function takes points (runs, d). Reference solutions are computed from exact gradients by
FISTA with restarts (Beck and Teboulle, 2009; O'Donoghue and Candès, 2015).
"""

import math
from collections.abc import Callable
from functools import cache
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_denoiser.paper.experiments.logistic import dataset
from coco_denoiser.paper.experiments.sampled import Field, Smooth, correlated, digits, linear
from coco_denoiser.paper.optimizers import project_l1_ball, project_simplex, soft_threshold
from coco_denoiser.typing import Array

Prox = Callable[[Array, float | Array], Array]


class _Map(NamedTuple):
    """psi: its proximal step, its value, the lowest corner of the set, and what is non-zero.

    `separable` tells whether a step may differ from coordinate to coordinate.
    """

    prox: Prox
    penalty: Field = lambda x: np.zeros(len(x))
    corner: Field = lambda g: g
    active: Callable[[Array], NDArray[np.bool_]] = lambda x: np.abs(x) > 1e-9
    separable: bool = False


class Composite(NamedTuple):
    """A problem of the experiment; attributes as in `Smooth` and `_Map`.

    Attributes:
        start: (d,), where every run starts.
        calls: oracle calls of a run.
        minimizer: (d,), to high accuracy.
    """

    smooth: Smooth
    map: _Map
    start: Array
    calls: int
    minimizer: Array

    @property
    def dimension(self) -> int:
        """The number d of variables."""
        return self.smooth.dimension

    def oracle(self, x: Array, rng: np.random.Generator) -> Array:
        """Return noisy gradients of f, (runs, d)."""
        return self.smooth.oracle(x, rng)

    def excess(self, x: Array) -> Array:
        """Return the objective above its least value, (runs,)."""
        both = np.concatenate((x, self.minimizer[None]))
        value = self.smooth.value(both) + self.map.penalty(both)
        return np.asarray(value[:-1] - value[-1])

    @property
    def reach(self) -> float:
        """Root mean square distance of a coordinate of the start from the minimiser."""
        return float(np.sqrt(np.mean((self.start - self.minimizer) ** 2)))


def _problem(smooth: Smooth, map_: _Map, *, calls: int, start: Array | None = None) -> Composite:
    begin = np.zeros(smooth.dimension) if start is None else start
    best = fista(smooth.gradient, map_.prox, smooth.L, begin)
    return Composite(smooth, map_, begin, calls, best)


def fista(gradient: Field, prox: Prox, L: float, start: Array) -> Array:
    """Minimise f + psi from exact gradients: accelerated, and restarted where it turns back."""
    x = y = start[None]
    t = 1.0
    for _ in range(20_000):
        new = prox(y - gradient(y) / L, 1 / L)
        back = float(((y - new) * (new - x)).sum()) > 0.0
        further = 1.0 if back else (1.0 + math.sqrt(1.0 + 4.0 * t * t)) / 2.0
        moved = float(np.abs(new - y).max())
        y = new if back else new + (t - 1.0) / further * (new - x)
        x, t = new, further
        if moved <= 1e-13 * (1.0 + float(np.abs(x).max())):
            break
    return np.asarray(x[0])


def _l1(weight: float, ridge: float = 0.0) -> _Map:
    """Return weight |x|_1 + ridge/2 |x|^2."""
    return _Map(
        lambda x, s: soft_threshold(x, s * weight) / (1.0 + s * ridge),
        lambda x: weight * np.abs(x).sum(axis=1) + 0.5 * ridge * (x * x).sum(axis=1),
        separable=True,
    )


def _groups(weight: float, size: int) -> _Map:
    def prox(x: Array, s: float | Array) -> Array:
        parts = x.reshape(len(x), -1, size)
        length = np.maximum(np.linalg.norm(parts, axis=2, keepdims=True), 1e-300)
        keep = np.maximum(1.0 - np.reshape(s, (-1, 1, 1)) * weight / length, 0.0)
        return np.asarray((keep * parts).reshape(x.shape))

    return _Map(
        prox, lambda x: weight * np.linalg.norm(x.reshape(len(x), -1, size), axis=2).sum(axis=1)
    )


def _box(low: float, high: float) -> _Map:
    return _Map(
        lambda x, _: np.clip(x, low, high),
        active=lambda x: (x > low + 1e-9) & (x < high - 1e-9),
        separable=True,
    )


def _simplex(d: int) -> _Map:
    return _Map(lambda x, _: project_simplex(x), corner=lambda g: np.eye(d)[g.argmin(axis=1)])


def _l1_ball(radius: float) -> _Map:
    def corner(g: Array) -> Array:
        largest = np.abs(g).argmax(axis=1)[:, None]
        sign = -radius * np.sign(np.take_along_axis(g, largest, axis=1))
        return np.where(np.arange(g.shape[1]) == largest, sign, 0.0)

    return _Map(lambda x, _: project_l1_ball(x, radius), corner=corner)


def _trace_ball(rows: int, columns: int, radius: float) -> _Map:
    """Return the matrices whose singular values sum to at most `radius`; active is the rank."""

    def prox(x: Array, _: float | Array) -> Array:
        u, s, v = np.linalg.svd(x.reshape(-1, rows, columns), full_matrices=False)
        return np.asarray(((u * project_l1_ball(s, radius)[:, None]) @ v).reshape(x.shape))

    def corner(g: Array) -> Array:
        u, _, v = np.linalg.svd(g.reshape(-1, rows, columns), full_matrices=False)
        return np.asarray(-radius * (u[:, :, :1] * v[:, :1]).reshape(g.shape))

    def active(x: Array) -> NDArray[np.bool_]:
        values = np.linalg.svd(x.reshape(-1, rows, columns), compute_uv=False)
        return np.asarray(values > 1e-9 * radius)

    return _Map(prox, corner=corner, active=active)


def _sparse(seed: int, d: int, batch: int, *, nonzero: int, by: float = 0.0) -> Smooth:
    """Return least squares with targets of a few features and noise of 1."""
    rng = np.random.default_rng(seed)
    A, truth = correlated(rng, 400, d, by), np.zeros(d)
    truth[:nonzero] = 2.0 * np.where(rng.random(nonzero) < 0.5, -1.0, 1.0)
    return linear("square", A, A @ truth + rng.standard_normal(400), batch=batch)


def _portfolio(seed: int = 3, d: int = 40) -> Smooth:
    """Return risk minus return, from days that a model of five factors draws.

    Up to a constant, half the mean square of a return r minus r is that of r - 1.
    """
    rng, days = np.random.default_rng(seed), 500
    loadings = rng.standard_normal((5, d))
    returns = rng.standard_normal((days, 5)) @ loadings + rng.standard_normal((days, d))
    returns += 0.5 * rng.random(d)
    return linear("square", returns, np.ones(days), batch=5)


def _quadratic() -> Smooth:
    h, minimum = np.linspace(1.0, 0.05, 30), 2.0 * np.random.default_rng(9).standard_normal(30)
    return Smooth(
        30,
        1.0,
        lambda x: 0.5 * ((x - minimum) ** 2) @ h,
        lambda x: h * (x - minimum),
        lambda x, rng: h * (x - minimum) + rng.standard_normal(x.shape),
    )


def _completion() -> Smooth:
    """Return the squared error at 150 of the 300 entries of a 20 x 15 matrix of rank 2."""
    rng = np.random.default_rng(11)
    M = (rng.standard_normal((20, 2)) @ rng.standard_normal((2, 15))).reshape(-1)
    seen = rng.choice(300, 150, replace=False)
    return linear("square", np.eye(300)[seen], M[seen] + 0.3 * rng.standard_normal(150), batch=8)


def _traffic() -> Composite:
    """Return the equilibrium of traffic across a 4 x 4 grid, from travel times that are 20% off.

    x are the flows on the links. The cars choose among all paths from corner to corner that go
    right and down; a link takes 1 + 0.15 (flow / capacity)^4.
    """
    ways = sorted({*permutations((0, 1) * 3)})  # turns: 0 goes down, 1 right
    links: dict[tuple[int, int, int], int] = {}
    taken = []
    for turns in ways:
        right = np.cumsum((0, *turns))
        down = np.arange(len(right)) - right
        taken.append(
            [links.setdefault(link, len(links)) for link in zip(down, right, turns, strict=False)]
        )
    paths = np.array([np.bincount(way, minlength=len(links)) for way in taken], dtype=float)
    capacity, cars = np.random.default_rng(5).uniform(0.5, 1.5, len(links)), 4.0

    def times(x: Array) -> Array:
        return np.asarray(1.0 + 0.15 * (x / capacity) ** 4)

    L = float(np.max(0.6 * cars**3 / capacity**4))
    smooth = Smooth(
        len(links),
        L,
        lambda x: (x + 0.03 * capacity * (x / capacity) ** 5).sum(axis=1),
        times,
        lambda x, rng: times(x) * (1.0 + 0.2 * rng.standard_normal(x.shape)),
    )
    shares = fista(
        lambda h: times(h @ paths) @ paths.T,
        lambda h, _: project_simplex(h, cars),
        L * float(np.linalg.norm(paths, 2)) ** 2,
        np.full(len(paths), cars / len(paths)),
    )
    towards = _Map(lambda x, _: x, corner=lambda g: cars * paths[(g @ paths.T).argmin(axis=1)])
    return Composite(smooth, towards, cars * paths.mean(axis=0), 300, shares @ paths)


def _logistic(data: str, batch: int, every: int = 1) -> Smooth:
    _, features, labels = dataset(data)
    return linear("logistic", features[::every], labels[::every], batch=batch)


def _nonnegative() -> Smooth:
    rng = np.random.default_rng(8)
    A = np.abs(correlated(rng, 300, 30, 0.5))
    truth = np.maximum(rng.standard_normal(30), 0.0)
    return linear("square", A, A @ truth + rng.standard_normal(300), batch=4)


_FREE = _Map(lambda x, _: x, separable=True)
_SIMPLEX_START = np.full(40, 1 / 40)
# Windows and models were compared on the first three before this experiment was written.
SEEN: dict[str, Callable[[], Composite]] = {
    "lasso": lambda: _problem(_sparse(1, 60, 8, nonzero=8), _l1(0.5), calls=400),
    "portfolio": lambda: _problem(_portfolio(), _simplex(40), calls=400, start=_SIMPLEX_START),
    "non-negative": lambda: _problem(_nonnegative(), _box(0.0, math.inf), calls=400),
}
HELD_OUT: dict[str, Callable[[], Composite]] = {
    "group lasso": lambda: _problem(_sparse(2, 60, 4, nonzero=15), _groups(0.7, 5), calls=600),
    "elastic net": lambda: _problem(_sparse(3, 50, 2, nonzero=6, by=0.7), _l1(0.4, 0.1), calls=600),
    "l1 ball": lambda: _problem(_sparse(4, 40, 4, nonzero=6, by=0.3), _l1_ball(8.0), calls=300),
    "box": lambda: _problem(_quadratic(), _box(-1.0, 1.0), calls=200),
    "l1-logistic, breast cancer": lambda: _problem(
        _logistic("breast-cancer", 1), _l1(0.02), calls=2000
    ),
    "l1-logistic, mushrooms": lambda: _problem(_logistic("mushrooms", 16, 4), _l1(0.01), calls=400),
    "trace norm, digits": lambda: _problem(
        digits(600, batch=16), _trace_ball(64, 10, 10.0), calls=300
    ),
}
FRANK_WOLFE: dict[str, Callable[[], Composite]] = {
    "portfolio": SEEN["portfolio"],
    "l1 ball": HELD_OUT["l1 ball"],
    "trace norm, digits": HELD_OUT["trace norm, digits"],
    "matrix completion": lambda: _problem(_completion(), _trace_ball(20, 15, 20.0), calls=300),
    "traffic": _traffic,
}
FREE: dict[str, Callable[[], Composite]] = {
    "quadratic": lambda: _problem(_quadratic(), _FREE, calls=200),
    "least squares": lambda: _problem(_sparse(3, 50, 2, nonzero=6, by=0.7), _FREE, calls=400),
    "logistic, breast cancer": lambda: _problem(
        _logistic("breast-cancer", 4), _l1(0.0, 0.01), calls=400
    ),
}


@cache
def problem(name: str) -> Composite:
    """Return a problem by its name."""
    return (SEEN | HELD_OUT | FRANK_WOLFE | FREE)[name]()
