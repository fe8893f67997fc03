"""What PyTorch says of an answer: its certificate, a warning where it falls short, its limits."""

from typing import Any

import numpy as np
import pytest
import torch

import coco_denoiser as coco
from coco_denoiser.models.cocoercive import Cocoercive
from coco_denoiser.torch import GradientDenoiser
from tests.torch.problems import flat, parameters


@pytest.mark.parametrize(
    "options", [{"window": 4}, {"window": 4, "forget": "fold"}, {"window": 2, "forget": "fold"}]
)
def test_diagnostics_hold_the_certificate_of_the_answer(options: dict[str, Any]) -> None:
    rng, tensors = np.random.default_rng(0), parameters()
    denoiser = GradientDenoiser(tensors, L=0.5, **options)
    arrays = coco.Denoiser(L=0.5, **options)
    moved = 0
    for k in range(8):
        for p in tensors:
            p.data += 0.1 * torch.from_numpy(rng.normal(size=p.shape))
            p.grad = torch.from_numpy(rng.normal(size=p.shape))
        theta = arrays(flat(tensors), flat(tensors, gradients=True))
        denoiser.denoise()
        found, expected = denoiser.diagnostics(), arrays.solution
        np.testing.assert_allclose(flat(tensors, gradients=True), theta, rtol=1e-9)
        if k == 0:  # one observation is no answer yet
            continue
        assert found.status is expected.status
        assert found.status is not None
        assert found.status.success
        assert max(found.gap, found.violation) <= 1e-9
        assert (found.gap, found.violation) == pytest.approx(
            (expected.gap, expected.violation), abs=1e-12
        )
        moved += found.status is coco.Status.SOLVED
    assert moved > 4


def test_an_answer_that_falls_short_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Cocoercive.estimate

    def short(*given: Any) -> Any:
        return honest(*given)._replace(status=coco.Status.STALLED, gap=0.5)

    (p,) = parameters()[:1]
    denoiser = GradientDenoiser(p, L=0.5, window=3)
    for k in range(2):
        p.data, p.grad = p.data + 0.1, torch.full_like(p, -float(k + 1))
        denoiser.denoise()
    p.data, p.grad = p.data + 0.1, torch.full_like(p, -3.0)
    monkeypatch.setattr(Cocoercive, "estimate", short)
    with pytest.warns(coco.ConvergenceWarning, match="relative gap 5.0e-01") as caught:
        denoiser.denoise()
    assert caught[-1].filename == __file__
    found = denoiser.diagnostics()
    assert (found.gap, found.status) == (0.5, coco.Status.STALLED)
    assert len(denoiser) == 3


LIMITS = [(torch.float32, 1e37), (torch.float64, 1e150)]


@pytest.mark.parametrize(("dtype", "largest"), LIMITS)
@pytest.mark.parametrize("of", ["point", "gradient"])
def test_finite_numbers_beyond_the_largest_are_named(
    dtype: torch.dtype, largest: float, of: str
) -> None:
    p = torch.nn.Parameter(torch.zeros(3, dtype=dtype))
    strict = GradientDenoiser(p, L=1.0, window=3)
    lenient = GradientDenoiser(p, L=1.0, window=3, nonfinite="skip")
    size = torch.full_like(p, 1.1 * largest)
    p.data, p.grad = (size, torch.ones_like(p)) if of == "point" else (p.data, size)
    given = p.grad.clone()
    with pytest.raises(ValueError, match=r"largest magnitude .* 1e\+37 in float32 and 1e\+150"):
        strict.denoise()
    with pytest.warns(UserWarning, match="an observation was skipped: .*largest magnitude"):
        assert not lenient.denoise()
    assert torch.equal(p.grad, given)
    assert len(strict) == len(lenient) == 0
    assert lenient.diagnostics().skipped == 1
    p.data, p.grad = torch.zeros_like(p), torch.full_like(p, 0.9 * largest)
    assert strict.denoise()
    assert len(strict) == 1
