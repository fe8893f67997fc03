"""Warnings that name the line of the user, however deep they arise."""

import sys
import warnings

# Whose lines a user did not write; `contextlib` stands for decorators.
_OURS = ("coco_denoiser", "contextlib", "torch")


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, naming the nearest line outside of this package and of what calls it back."""
    frame, level = sys._getframe(1), 2  # noqa: SLF001 - it is documented
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
