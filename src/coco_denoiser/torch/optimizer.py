"""CocoOptimizer: any first-order optimizer of torch.optim, given denoised gradients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, Literal, TypeAlias

import torch
import torch.distributed as dist
from torch.optim import LBFGS, Optimizer

from coco_denoiser._warnings import warn_user
from coco_denoiser.models import Model
from coco_denoiser.models.base import Bound
from coco_denoiser.torch import checkpoint
from coco_denoiser.torch.denoiser import (
    Diagnostics,
    GradientDenoiser,
    NonFinite,
    not_compiled,
)
from coco_denoiser.typing import State

Loss: TypeAlias = Any  # whatever a closure returns, and with it a step
# What groups of optimizers have that divide by the size of the gradients they see.
_ADAPTIVE = {"betas", "eps", "etas"}
_SHARED = ("param_groups", "state", "defaults")  # with the wrapped optimizer
_rate = itemgetter("lr")  # of a group
_version = attrgetter("_version")  # of a tensor: how often it was written to
_ONE_GRADIENT = "take one gradient per step"


class CocoOptimizer(Optimizer):
    r"""Step a wrapped optimizer with gradients denoised over the last K steps.

    All parameters together are one point $x$. At every step, over the last K points with their
    noisy gradients $g_i$,

    $$\begin{align*}
    \operatorname{argmin}_\theta\quad & \sum_i \|\theta_i - g_i\|^2 \\
    \text{subject to}\quad & \|\theta_m - \theta_l - c\,(x_m - x_l)\| \le r\,\|x_m - x_l\|
    \quad\text{for all pairs } m, l
    \end{align*}$$

    with $c = (L + \mu) / 2$ and $r = (L - \mu) / 2$, and the wrapped optimizer sees the newest
    $\theta$.

    Everything else stays as it is: `param_groups`, `state` and `defaults` are those of the
    wrapped optimizer, so that schedulers and checkpoints see what they always saw. Its other
    attributes, such as `train()` and `eval()`, are there too. A step is

    1. evaluate: the closure, if there is one, once; the wrapped optimizer is told its loss;
    2. observe: collect points and gradients, reject what does not belong in the window, update the
       tables, solve, combine;
    3. put the denoised gradients in place;
    4. step the wrapped optimizer;
    5. put the gradients back, unless that has cleared them.

    Examples:
        >>> import torch
        >>> from coco_denoiser.torch import CocoOptimizer
        >>> x = torch.nn.Parameter(torch.full((3,), 10.0))
        >>> optimizer = CocoOptimizer(torch.optim.SGD([x], lr=0.5), L="1/lr")
        >>> for _ in range(50):
        ...     optimizer.zero_grad()
        ...     loss = 0.5 * (x - 1.0).square().sum()
        ...     loss.backward()
        ...     optimizer.step()
        >>> bool((x - 1.0).abs().max() < 1e-3)
        True

    Args:
        optimizer: the optimizer to wrap.
        L: upper bound on the curvature of the loss, a function that returns it, or "1/lr": the
            bound then follows the learning rate at every step, whatever a scheduler does, and
            a rate of 0 bounds nothing. Of groups with different rates, the smallest positive
            one counts, which assumes least.
        nonfinite: what to do in a step whose gradients hold an infinity or NaN, or exceed the
            largest magnitude that a window holds (1e37 in float32, 1e150 in float64): "skip"
            the observation and pass the gradients on unchanged, as if there were no wrapper, or
            "raise" ValueError. Finite ones give a warning, and so do ten in a row.
        model: `Cocoercive`, with its options, or `Gaussian`, which needs no L; L alone is short
            for `model=Cocoercive(L)`.
        window: how many observations are kept, K; memory for 2 K copies of the parameters.
            "auto" is 16, and 32 for the Gaussian model.
        process_group: the ranks that together hold the parameters; None derives it from
            sharded parameters, and adds nothing up if there are none.
        forget: what becomes of the observation that leaves the window: "drop" it, or "fold" it
            into its successor. With window=2, folding is a recursive filter, and its memory two
            copies of the parameters. Not with the Gaussian model.

    References:
        Madeira, Negrinho, Xavier and Aguiar, [COCO denoiser: using co-coercivity for variance
        reduction in stochastic convex optimization](https://arxiv.org/abs/2109.03207), 2021.
    """

    # GradScaler must unscale before it calls us, even if the wrapped optimizer could do that
    # by itself: a scaled gradient has no place in the window.
    _step_supports_amp_scaling = False

    wrapped: Optimizer
    denoiser: GradientDenoiser
    _warned: bool  # of what harms

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        L: Bound | Literal["1/lr"] | None = None,
        nonfinite: NonFinite = "skip",
        model: Model | None = None,
        window: int | Literal["auto"] = "auto",
        process_group: dist.ProcessGroup | None = None,
        forget: Literal["drop", "fold"] = "drop",
    ) -> None:
        _refuse(optimizer)
        if L == "1/lr" and not all("lr" in group for group in optimizer.param_groups):
            raise ValueError("L='1/lr' needs an optimizer whose groups have an lr. Pass a number.")
        denoiser = GradientDenoiser(
            [],
            L=_InverseRate(optimizer) if L == "1/lr" else L,
            nonfinite=nonfinite,
            model=model,
            window=window,
            process_group=process_group,
            forget=forget,
        )
        # Not Optimizer.__init__, which would make groups and a state of its own.
        self.__setstate__({"wrapped": optimizer, "denoiser": denoiser, "_warned": False})
        self._look()

    def _look(self) -> State:
        """Let the window follow the groups as they are, warn of harm; return how to observe."""
        model, name, harm = self.denoiser.stream.model, type(self.wrapped).__name__, None
        unknown = isinstance(getattr(model, "L", None), _InverseRate) or model.name == "gaussian"
        parameters, maximize, idle = list[torch.Tensor](), set[bool](), True
        for group in self.wrapped.param_groups:
            parameters += group["params"]
            maximize.add(bool(group.get("maximize")))
            idle = idle and not group.get("lr", 1.0)
            # A schedule-free optimizer calls its interpolation momentum.
            if group.get("momentum") and "weight_lr_power" not in group:
                harm = (
                    f"{name} has momentum, which averages over time as denoising does: both delay, "
                    "and together they may diverge. Denoising is meant for SGD without momentum."
                )
            elif unknown and _ADAPTIVE & group.keys():
                harm = (
                    f"{name} normalises gradients: its rate says nothing of the curvature, and "
                    "denoising increases its effective step size. Pass a known L, or use plain SGD."
                )
        if len(maximize) > 1:
            raise ValueError(
                "maximize must be the same in all param_groups: gradients of a saddle-point "
                "problem are not co-coercive."
            )
        if harm is not None and not self._warned:
            self._warned = True
            warn_user(harm)
        self.denoiser.parameters = parameters
        return {"sign": -1.0 if True in maximize else 1.0, "idle": idle}

    def __getstate__(self) -> State:
        return {name: getattr(self, name) for name in ("wrapped", "denoiser", "_warned")}

    def __getattr__(self, name: str) -> Any:
        if name == "wrapped":  # not set yet: it is being copied
            raise AttributeError(name)
        return getattr(self.wrapped, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SHARED:
            setattr(self.wrapped, name, value)
        else:
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        """Show the settings, then the wrapped optimizer."""
        return f"CocoOptimizer({self.denoiser.stream})\n{self.wrapped!r}"

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002  # PyTorch's own
        """Clear the gradients, and whatever else the wrapped optimizer clears with them."""
        self.wrapped.zero_grad(set_to_none)

    @not_compiled
    @torch.no_grad()
    def step(
        self,
        closure: Callable[[], Loss] | None = None,
        *,
        noise_variance: float | torch.Tensor = 1.0,
    ) -> Loss:
        """Take one step; return the loss of the closure, if there is one.

        Args:
            closure: reevaluates the model and returns the loss; called once.
            noise_variance: noise variance of this step's gradients, relative to the others': a
                batch of half the size has twice the variance.
        """
        args: tuple[Any, ...] = (self,) if closure is None else (self, closure)
        kwargs: State = {"noise_variance": noise_variance}
        for before in self._optimizer_step_pre_hooks.values():
            args, kwargs = before(self, args, kwargs) or (args, kwargs)
        loss = self._step(*args[1:], **kwargs)
        for after in self._optimizer_step_post_hooks.values():
            after(self, args, kwargs)
        return loss

    # Else PyTorch would add its own hooks: those for all optimizers then run in the wrapped
    # step, and here once more.
    step.hooked = True  # type: ignore[attr-defined]  # of a function

    def _step(
        self, closure: Callable[[], Loss] | None = None, *, noise_variance: float = 1.0
    ) -> Loss:
        loss, how = None, self._look()
        parameters = self.denoiser.parameters
        told: list[Callable[[], Loss]] = []
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
            versions = list(map(_version, parameters))

            def replay() -> Loss:  # the wrapped optimizer gets the loss, and evaluates nothing
                if versions != list(map(_version, parameters)):
                    why = (
                        "it asks for another one elsewhere, which would not be denoised. Use a "
                        "first-order optimizer."
                    )
                    raise _unsuitable(self.wrapped, _ONE_GRADIENT, why)
                return loss

            told = [replay]
        denoised = self.denoiser.observe(noise_variance, **how)
        # Where the observation is skipped or unchanged, the wrapped one gets what is there.
        given: Sequence[tuple[torch.Tensor, torch.Tensor | None]]
        given = denoised or [(p, p.grad) for p in parameters]
        originals, replaced = list[torch.Tensor | None](), False
        try:
            for p, theta in given:
                originals.append(p.grad)
                p.grad = theta
            self.wrapped.step(*told)
        finally:
            for (p, theta), original in zip(given, originals, strict=False):
                now = p.grad
                if now is not None:  # else the wrapped one has cleared it
                    replaced = replaced or (now is not theta and theta is not None)
                    p.grad = original
        if replaced:
            why = (
                "it replaced them by its own, which were not denoised. Wrap the optimizer that it "
                "wraps."
            )
            raise _unsuitable(self.wrapped, "step with the gradients in .grad", why)
        return loss

    def diagnostics(self) -> Diagnostics:
        """Return what the last step did, and what the window costs; print it to read it."""
        return self.denoiser.diagnostics()

    def reset(self) -> None:
        """Forget every observation; the wrapped optimizer keeps its state."""
        self.denoiser.reset()

    def add_param_group(self, param_group: State) -> None:
        """Add parameters to the wrapped optimizer; the next step starts a new window."""
        self.wrapped.add_param_group(param_group)

    def state_dict(self) -> State:
        """Return the wrapped optimizer's state_dict, with the window in it.

        As in PyTorch, tensors are those in use, not copies.
        """
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        state = self.wrapped.state_dict()
        state["state"] = {index: dict(entries) for index, entries in state["state"].items()}
        self._look()
        checkpoint.insert(state, self.denoiser)
        for after in self._optimizer_state_dict_post_hooks.values():
            state = after(self, state) or state
        return state

    def load_state_dict(self, state_dict: State) -> None:
        """Go back to a saved state, of this optimizer or of the wrapped one alone.

        In the second case the window is empty afterwards, and a warning says so.
        """
        state_dict = dict(state_dict)
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = before(self, state_dict) or state_dict
        with self.denoiser.stream:
            self._look()
            plain, restore = checkpoint.split(state_dict, self.denoiser)
            self.wrapped.load_state_dict(plain)
            restore()
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)


@dataclass(repr=False)
class _InverseRate:
    """The bound that follows the learning rate: of several, the smallest positive one."""

    optimizer: Optimizer

    def __call__(self) -> float:
        rates = map(float, map(_rate, self.optimizer.param_groups))
        # Without a step nothing moves: a bound so large constrains nothing but equal points.
        return 1.0 / max(min(filter(None, rates), default=0.0), 1e-30)

    def __repr__(self) -> str:
        return repr("1/lr")


def _unsuitable(optimizer: object, must: str, why: str) -> TypeError:
    """Return the error of an optimizer that does not step once with the gradients given to it."""
    return TypeError(f"optimizer must {must}, got {type(optimizer).__name__}: {why}")


def _refuse(optimizer: object) -> None:
    """Refuse what does not step once with the gradients that it is given."""
    if not isinstance(optimizer, Optimizer):
        why = "wrap one, CocoOptimizer(torch.optim.SGD(parameters, lr=0.1), L=...)."
        raise _unsuitable(optimizer, "be a torch.optim.Optimizer", why)
    if isinstance(optimizer, LBFGS):
        why = (
            "it evaluates its closure many times and compares the gradients, which denoising would "
            "falsify. Use a first-order optimizer."
        )
        raise _unsuitable(optimizer, _ONE_GRADIENT, why)
    if isinstance(optimizer, CocoOptimizer):
        raise _unsuitable(optimizer, "denoise nothing itself", "wrap the one inside.")
