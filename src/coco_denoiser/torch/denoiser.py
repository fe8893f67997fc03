"""GradientDenoiser: the sliding window of a set of parameters, for hand-written loops.

What a step does is in `coco_denoiser.window.engine`, which never sees a tensor; the tensors are
in `_vectors.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist

from coco_denoiser import _validation as check
from coco_denoiser.models.choice import ModelName, choose, size
from coco_denoiser.models.cocoercive import Bound, CoCoercive
from coco_denoiser.torch import _checkpoint
from coco_denoiser.torch._diagnostics import Diagnostics
from coco_denoiser.torch._vectors import TensorVectors
from coco_denoiser.window import Engine, Step
from coco_denoiser.window.vectors import Measured

NonFinite = Literal["skip", "raise"]


class GradientDenoiser:
    r"""Denoise the gradients of parameters, each together with the K - 1 observed before it.

    All parameters together are one point $x$, all their gradients one vector $g$. At every call,
    over the last K observations,

    $$\begin{align*}
    \operatorname{argmin}_\theta\quad & \sum_i \|\theta_i - g_i\|^2 \\
    \text{subject to}\quad & \|\theta_m - \theta_l - c\,(x_m - x_l)\| \le r\,\|x_m - x_l\|
    \quad\text{for all pairs } m, l
    \end{align*}$$

    with $c = (L + \mu) / 2$ and $r = (L - \mu) / 2$; the newest $\theta$ takes the place of the
    gradients. For loops that are written by hand:

        denoiser = GradientDenoiser(model.parameters(), L=4.0, window=8)
        ...
        loss.backward()
        scaler.unscale_(optimizer)
        denoiser.denoise()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)

    Parameters that are frozen (no `requires_grad`, no gradient) are not part of the point and
    take no memory. A gradient that is None counts as zero.

    Args:
        parameters: the parameters; one tensor is one parameter.
        nonfinite: what to do with an observation that has an infinity or NaN: "skip" it, or
            "raise" FloatingPointError. It never enters the window.

    The other options are those of `CocoOptimizer`.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        L: Bound | None = None,
        model: ModelName | None = None,
        mu: Bound = 0.0,
        window: int | Literal["auto"] = "auto",
        state_dtype: torch.dtype | None = None,
        nonfinite: NonFinite = "skip",
        process_group: dist.ProcessGroup | None = None,
        tol: float = 1e-9,
        forget: Literal["drop", "fold"] = "drop",
        noise_std: float | None = None,
    ) -> None:
        self.parameters = _parameters(parameters)
        self.model = choose(model, L, mu, tol=tol, noise_std=noise_std)
        if window != "auto":
            check.count("window", window, optional=False)
        kept = size(window, self.model, otherwise=8)
        self.nonfinite = check.one_of("nonfinite", nonfinite, ("skip", "raise"))
        self.skipped = 0
        self.engine = Engine(self.model, window=kept, forget=forget)
        if state_dtype not in (None, torch.float32, torch.float64):
            raise ValueError(
                f"state_dtype must be torch.float32, torch.float64 or None, got {state_dtype}: "
                "differences between close points need the digits."
            )
        self.vectors = TensorVectors(self.engine.slots or 1, state_dtype, process_group)

    @property
    def L(self) -> Bound | None:  # noqa: N802
        """The upper bound on the curvature, as it was given; a new one holds from the next step."""
        return self.model.L

    @L.setter
    def L(self, value: Bound) -> None:  # noqa: N802
        if not isinstance(self.model, CoCoercive):
            raise TypeError("L can be changed with model='cocoercive' only. Make a new denoiser.")
        self.model.L = value

    @property
    def mu(self) -> object:
        """The lower bound, as it was given."""
        return self.model.settings.get("mu", 0.0)

    @property
    def window(self) -> int:
        """How many observations are kept, K."""
        return self.engine.window or 1

    @property
    def forget(self) -> str:
        """What becomes of the observation that leaves the window."""
        return self.engine.forget

    def __repr__(self) -> str:
        """Show the settings, and how many observations are held."""
        given = {
            **self.model.settings,
            "window": self.window,
            "forget": self.forget,
            "state_dtype": self.vectors.state_dtype,
            "nonfinite": self.nonfinite,
        }
        settings = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"<GradientDenoiser({settings}) with {len(self)} observations>"

    def reset(self) -> None:
        """Forget every observation, and free its memory."""
        self.engine.reset()
        self.vectors.reset()

    def __len__(self) -> int:
        """Return the number of observations that are held; folded ones count as one."""
        return len(self.engine)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    @torch.no_grad()
    def denoise(self, *, noise_variance: float = 1.0) -> bool:
        """Put the denoised gradients in place of the gradients.

        Args:
            noise_variance: noise variance of this observation, relative to the others'.

        Returns:
            False if they are not finite: gradients and window are as they were.
        """
        variance = check.positive("noise_variance", noise_variance)
        changed = self.observe(self.parameters, noise_variance=variance)
        for parameter, theta in changed or ():
            if parameter.grad is None:
                parameter.grad = theta.clone()
            else:
                parameter.grad.copy_(theta)
        return changed is not None

    def observe(
        self,
        parameters: Sequence[torch.Tensor],
        *,
        maximize: bool = False,
        noise_variance: float = 1.0,
        standing: Callable[[], bool] = lambda: False,
    ) -> list[tuple[torch.Tensor, torch.Tensor]] | None:
        """Take one observation, under no_grad; change no gradient.

        Args:
            parameters: the parameters, with their gradients.
            maximize: whether the gradients are those of a function to maximise, whose negative then
                has curvature between mu and L.
            noise_variance: noise variance of this observation, relative to the others'.
            standing: says whether the optimizer is made to stand still. Zero gradients are
                then no observation: checkpointing makes such a step to create the state.

        Returns:
            The parameters whose gradient changes, each with the denoised one, valid until the
            next call; None if the observation was refused.
        """
        sign = -1.0 if maximize else 1.0
        return observe_together([(self, parameters)], sign, noise_variance, standing)

    def look(
        self, parameters: Sequence[torch.Tensor], sign: float, standing: Callable[[], bool]
    ) -> Step | Measured:
        """Take hold of the parameters and their gradients, and measure them."""
        vectors = self.vectors
        members = [p for p in parameters if p.requires_grad or p.grad is not None]
        if len(members) != len(vectors.members) or not all(map(is_, members, vectors.members)):
            self.reset()
            vectors.prepare(members)
        vectors.hold()
        return self.engine.measure(vectors, sign=sign, standing=standing)

    def diagnostics(self) -> Diagnostics:
        """Return what the last step did, and what the window costs."""
        engine, last = self.engine, self.engine.last
        L, mu = self.model.bounds or (np.nan, np.nan)
        return Diagnostics(
            observations=len(self),
            window=self.window,
            L=L,
            mu=mu,
            weights=engine.weights(),
            active=last.active if last else 0,
            gap=last.gap if last else 0.0,
            moved=engine.moved(),
            std=np.nan if last is None or last.std is None else last.std,
            noise_std=np.nan if last is None or last.noise_std is None else last.noise_std,
            skipped=self.skipped,
            nbytes=self.vectors.nbytes,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the window in the layout of an optimizer's state_dict.

        As in PyTorch, tensors are those in use, not copies.
        """
        names = list(range(len(self.parameters)))
        state: dict[str, Any] = {"state": {}, "param_groups": [{"params": names}]}
        _checkpoint.insert(state, [_checkpoint.Part(self, self.parameters)], self.parameters)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go back to a saved state of the same parameters and settings.

        Raises:
            ValueError: if the state is damaged or of other settings; nothing has changed.
        """
        _, ours = _checkpoint.remove(state_dict)
        _checkpoint.restore(ours, [_checkpoint.Part(self, self.parameters)], self.parameters)


def observe_together(
    windows: Sequence[tuple[GradientDenoiser, Sequence[torch.Tensor]]],
    sign: float,
    variance: float,
    standing: Callable[[], bool],
) -> list[tuple[torch.Tensor, torch.Tensor]] | None:
    """Take one observation into several windows, each with its parameters, or into none."""
    changed = []
    try:
        found = [window.look(parameters, sign, standing) for window, parameters in windows]
        if Step.REFUSED not in found:
            for (window, _), seen in zip(windows, found, strict=True):
                if isinstance(seen, Measured):
                    vectors = window.vectors
                    if window.engine.take(vectors, seen, variance) is Step.DENOISED:
                        changed += vectors.theta()
            return changed
    finally:
        for window, _ in windows:
            window.vectors.release()
    for window, _ in windows:
        window.skipped += 1
    if any(window.nonfinite == "raise" for window, _ in windows):
        raise FloatingPointError(
            "the gradients or parameters hold an infinity or NaN (on this or on another "
            "rank). The window is as it was. Pass nonfinite='skip' to leave out such steps."
        )
    return None


def _parameters(given: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    found = [given] if isinstance(given, torch.Tensor) else list(given)
    for p in found:
        if not isinstance(p, torch.Tensor):
            raise TypeError(
                f"parameters must be tensors, got a {type(p).__name__}. Pass model.parameters()."
            )
    return found
