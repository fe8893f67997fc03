"""Averages of the iterates, which calm the noise without touching the path itself."""

import numpy as np

from coco_denoiser.typing import Array


class TailAverage:
    r"""Average the iterates from number `start` on (Jain et al., 2018).

    $$\bar x_k = \frac{1}{k - \text{start} + 1} \sum_{j=\text{start}}^k x_j,
    \quad\text{and } x_k \text{ itself before that}$$

    It takes the iterates x_0, x_1, ... one by one and answers each with the average so far. The
    first iterates mostly remember $x_0$; leaving them out keeps the noise reduction of an
    average without its slow start.
    """

    def __init__(self, start: int) -> None:
        if start < 0:
            raise ValueError(f"start must be at least 0, got {start}.")
        self._start = start
        self.reset()

    def reset(self) -> None:
        """Forget all iterates."""
        self._seen = 0
        self._mean: Array | None = None

    def __call__(self, x: Array) -> Array:
        """Take the next iterate and return the average; both stay independent arrays."""
        self._seen += 1
        count = self._seen - self._start
        if count <= 1 or self._mean is None:
            self._mean = np.array(x)
        else:
            self._mean += (x - self._mean) / count
        return self._mean.copy()


class PolyakRuppert(TailAverage):
    r"""Average all iterates, $x_0$ included: $\bar x_k = \frac{1}{k + 1} \sum_{j=0}^k x_j$."""

    def __init__(self) -> None:
        super().__init__(start=0)
