"""The windows of an optimizer: one for all parameters, or one for each group."""

from collections.abc import Sequence
from typing import Any

from coco_denoiser import _validation as check
from coco_denoiser.torch.checkpoint import Part
from coco_denoiser.torch.denoiser import GradientDenoiser


class Windows:
    """As many windows as there are models or groups, all with the same options.

    Args:
        per: "model" or "group".
        options: what a window is made with.
    """

    def __init__(self, per: str, options: dict[str, Any]) -> None:
        self.per = check.one_of("per", per, ("model", "group"))
        self._options = options
        self.made = [GradientDenoiser([], **options)]

    def __getstate__(self) -> dict[str, Any]:
        # A process group belongs to its process.
        return {**self.__dict__, "_options": {**self._options, "process_group": None}}

    def parts(self, groups: Sequence[dict[str, Any]]) -> list[Part]:
        """Return the windows with the parameters of these groups."""
        if self.per == "model":
            return [Part(self.made[0], [p for group in groups for p in group["params"]])]
        sizes = [group.get("window", self._options["window"]) for group in groups]
        return [
            Part(self._number(i, size), groups[i]["params"], i, "group")
            for i, size in enumerate(sizes)
            if size != 0
        ]

    def _number(self, i: int, size: Any) -> GradientDenoiser:
        """Return a window, made if necessary."""
        self.made += [GradientDenoiser([], **self._options) for _ in range(i + 1 - len(self.made))]
        if size != "auto" and size != self.made[i].window:
            self.made[i] = GradientDenoiser([], **{**self._options, "window": size})
        return self.made[i]
