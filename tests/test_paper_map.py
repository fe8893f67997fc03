"""The paper map points at things that exist, and at every experiment."""

import os
import pkgutil
import re
from pathlib import Path

import pytest

from coco_denoiser.experiments.catalogue import EXPERIMENTS
from coco_denoiser.experiments.experiment import FIGURES

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "paper-map.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`([^`]+)`", TEXT)))
# Every label of the paper's source, in its order.
LABELS = """\
sec:abstract
sec:introduction
fig:COCO_schematic
sec:related_work
sec:COCO
subsec:max_likelihood
eq:co-coercivity
ass:L_constant
ass:gaussian_noise
eq:g=theta+w
eq:COCO_formalization
section:Solution_Methods_QCQP
algorithm:FDPG
theorem:closed_form_COCO_2
eq:COCO_closed_form_K=2
eq:COCO_dual_reformulation
fig:MSE_totalVsVariance
sec:estimator_properties
sec:estimator_properties_theoretical
theo:sum_thetas_equal_sum_gs
theorem:Total_MSE_COCO<Total_MSE_Raw
sec:experimental_analysis
fig:ElementwiseMSE
section:stochastic_optimization
fig:synthetic_dataset_SGD&Adam_Performance
fig:real_dataset
sec:limitations
sec:conclusion
sec:acknowledgements
sec:detailed derivation FDPG
eq:add_and_subtract
eq:COCO_dual_reformulation2
eq:3.10
eq:3.11
eq:3.12
eq:3.13
eq:change_variable_proximity
sec:warm-starting
fig:warm_starting
section:appendix_proofs
COCO_formulation_generic_Sigma
section:proof_theorem_closedformK=2
eq:theta_1_and_2_function_of_mu
eq:quadratic_expression
sec:proof_sum_thetas_equal_sum_gs
sec:proof_Total_MSE_COCO<Total_MSE_Raw
eq:MSE_theta_leq_MSE_g
sec:app_estimator_properties
sec:app_coco_tightness
eq:p_inactive_expression
fig:constraints_tightness
fig:theoretical_prob_constraints_sigma
sec:MSEvsDistance
fig:MSEvsDistance
sec:extension_COCO_elementwise_improvement
fig:ElementwiseMSE_SM
fig:MSE_singular_RndConfig_disposition
fig:Bias
sec:appendix_comparison_other_VR
fig:COCOvstunedSStovariance
fig:COCOvsOtherVR
""".splitlines()
# The paper's source is not ours to pass on; where its place is named, the list is checked.
SOURCE = os.environ.get("COCO_DENOISER_PAPER")


def test_functions_exist() -> None:
    functions = [name for name in NAMED if name.startswith("coco_denoiser.")]
    assert functions
    for name in functions:
        assert callable(pkgutil.resolve_name(_with_colon(name))), name


def _with_colon(name: str) -> str:
    """Say which part is the module: some functions have the name of theirs."""
    parts = name.split(".")
    modules = [part for part in parts[:-1] if part.islower()]
    return ".".join(modules) + ":" + ".".join(parts[len(modules) :])


@pytest.mark.parametrize("name", [name for name in NAMED if name.startswith("tests/")])
def test_tests_exist(name: str) -> None:
    path, test = name.split("::")
    assert re.search(rf"^def {test}\(", (ROOT / path).read_text("utf-8"), re.MULTILINE)


def test_every_experiment_of_the_paper_is_there_with_its_figures() -> None:
    rows = {
        name: row for row in TEXT.splitlines() for name in re.findall(r"^\|.*\| `([^`]+)` \|", row)
    }
    for name, experiment in EXPERIMENTS.items():
        for figure in experiment.figure.split(", "):
            label = figure.split(" (")[0]
            if label:
                assert f"`fig:{label}`" in rows[name], name


def test_no_label_is_left_out() -> None:
    assert [label for label in LABELS if f"`{label}`" not in TEXT] == []


def test_figures_are_numbered_in_the_papers_order() -> None:
    assert [f"fig:{name}" for name in FIGURES] == [name for name in LABELS if name[:3] == "fig"]


if SOURCE:

    def test_the_labels_are_those_of_the_paper() -> None:
        source = Path(str(SOURCE)).read_text("utf-8")
        assert re.findall(r"\\label\{([^}]*)\}", source) == LABELS


def test_nothing_else_is_named() -> None:
    known = {*EXPERIMENTS, "docs/pictures.py", "coco-denoiser reproduce NAME"}
    rest = [
        name
        for name in NAMED
        if not name.startswith(("coco_denoiser.", "tests/")) and name not in LABELS
    ]
    assert {*rest} <= known
