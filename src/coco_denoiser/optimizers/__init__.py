"""The paper's baselines and rivals, as small NumPy classes that take an optional denoiser."""

from coco_denoiser.optimizers.adaptive import Adadelta, AdaGrad, Adam, AdaMax, Nadam, RMSprop
from coco_denoiser.optimizers.averaging import PolyakRuppert, TailAverage
from coco_denoiser.optimizers.base import SGD, DenoiserLike, Optimizer
from coco_denoiser.optimizers.driver import Trajectory, run
from coco_denoiser.optimizers.finite_sum import SAG, SAGA, STRSAGA
from coco_denoiser.optimizers.momentum import GradientEMA, HeavyBall
from coco_denoiser.optimizers.recursive import MARS, STORM
from coco_denoiser.optimizers.schedule_free import ScheduleFree
from coco_denoiser.optimizers.schedules import Schedule, decreasing, fixed
from coco_denoiser.optimizers.svrg import SSVRG, SVRG
from coco_denoiser.optimizers.transport import IGT

__all__ = [
    "IGT",
    "MARS",
    "SAG",
    "SAGA",
    "SGD",
    "SSVRG",
    "STORM",
    "STRSAGA",
    "SVRG",
    "AdaGrad",
    "AdaMax",
    "Adadelta",
    "Adam",
    "DenoiserLike",
    "GradientEMA",
    "HeavyBall",
    "Nadam",
    "Optimizer",
    "PolyakRuppert",
    "RMSprop",
    "Schedule",
    "ScheduleFree",
    "TailAverage",
    "Trajectory",
    "decreasing",
    "fixed",
    "run",
]
