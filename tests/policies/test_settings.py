"""Settings of policies and encoders reject NaN and infinity; the message names the setting."""

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pytest
from tests.policies.demonstrations import CONTRACT

import stringline.policies
from stringline.datasets.loading.statistics import statistics_of
from stringline.encoders.coordinates.canonical import CylindricalPlaces, SphericalPlaces
from stringline.encoders.coordinates.coordinates import GridPlaces, MetricPlaces, PatchDepthPlaces
from stringline.encoders.positions import rotary
from stringline.encoders.positions.absolute import LearnedEncoding, SinusoidalEncoding
from stringline.encoders.positions.frequencies import (
    AxialFrequencies,
    CirculantFrequencies,
    FrequencyInitialisation,
    LinearlyDependentFrequencies,
    MixedFrequencies,
)
from stringline.encoders.positions.lie import ComRopeAp, ComRopeLd, LieRE
from stringline.encoders.positions.rotary import TensorProductString
from stringline.encoders.training.settings import TrainerSettings
from stringline.encoders.vision.patches import SurfaceNormals
from stringline.encoders.vision.vit import VisionTransformer
from stringline.policies.action_spaces.gripper_poses import GripperPoses
from stringline.policies.action_spaces.space import ContractActions, OpenClose
from stringline.policies.algorithms.chunk_policy import PolicySettings
from stringline.policies.execution.execution import Execution
from stringline.policies.networks.unet import UnetSettings
from stringline.policies.observation.interfaces import ObservationHistory
from stringline.policies.observation.normaliser import (
    MeanStdNormaliser,
    MinMaxNormaliser,
    QuantileNormaliser,
)
from stringline.policies.observation.observation_settings import EncoderSettings

ONE = (float, float | None, float | str, float | Sequence[float])
SEVERAL = (tuple[float, float], tuple[float, float] | None, Sequence[float])
STARTS = ("theta", "wavelengths", "uniform", "omega")  # Exactly one of them is given.
STATISTICS = statistics_of(lambda: iter([np.array([[0.0, 0.0], [1.0, 2.0]])]))
SPACE = {"heads": 2, "head_dim": 16, "axes": 2}
PLANES = {"sets": 1, "axes": 2, "planes": 8}


def kinds(base: type) -> Iterator[type]:
    """Yields a class and all classes derived from it."""
    yield base
    for derived in base.__subclasses__():
        yield from kinds(derived)


def settings() -> list[Callable[..., object]]:
    """Returns the settings of all policies and observation encoders, with required arguments."""
    for module in pkgutil.walk_packages(stringline.policies.__path__, "stringline.policies."):
        importlib.import_module(module.name)
    found = {*kinds(PolicySettings), *kinds(EncoderSettings), *kinds(UnetSettings)}
    given = {"observation_encoder": None, "encoding": None, "coordinates": None}
    by_name = sorted(found, key=lambda kind: kind.__name__)
    return [
        partial(kind, **{k: v for k, v in given.items() if k in inspect.signature(kind).parameters})
        for kind in by_name
    ]


ENCODINGS = (
    rotary.Rope,
    rotary.VisionLlamaRope,
    rotary.RopeMixed,
    rotary.CayleyString,
    rotary.CirculantString,
    rotary.LiereCommute,
    rotary.RopeInLearnedBasis,
    SinusoidalEncoding,
    TensorProductString,
    LieRE,
    ComRopeAp,
    ComRopeLd,
)
PLACES = (GridPlaces, PatchDepthPlaces, MetricPlaces, SphericalPlaces, CylindricalPlaces)
OTHERS = (
    *(partial(encoding, **SPACE) for encoding in ENCODINGS),
    partial(LearnedEncoding, **SPACE, cells=4, low=-1.0, high=1.0),
    *(
        partial(frequencies, **PLANES, theta=10.0)
        for frequencies in (
            AxialFrequencies,
            MixedFrequencies,
            CirculantFrequencies,
            LinearlyDependentFrequencies,
        )
    ),
    *PLACES,
    FrequencyInitialisation,
    SurfaceNormals,
    partial(VisionTransformer, rotary.Rope(2, 16, 2, theta=10.0), 32),
    partial(TrainerSettings, steps=1, batch_size=1),
    partial(ObservationHistory, ages_s=[0.5]),
    partial(Execution, "temporal_ensembling"),
    *(
        partial(normaliser, STATISTICS)
        for normaliser in (MinMaxNormaliser, MeanStdNormaliser, QuantileNormaliser)
    ),
    partial(GripperPoses, contract=CONTRACT),
    partial(OpenClose, contract=CONTRACT, arms=ContractActions(contract=CONTRACT)),
)


def name_of(maker: Callable[..., object]) -> str:
    """Returns the name of what is made."""
    return str(getattr(maker.func if isinstance(maker, partial) else maker, "__name__", maker))


def spoiled(annotation: object, bad: float) -> object:
    """Returns invalid values of a type, one or several; None: the type is not a number."""
    if annotation in ONE:
        return bad
    return (
        ((bad, bad, bad) if annotation == Sequence[float] else (bad, bad))
        if annotation in SEVERAL
        else None
    )


def refuses(maker: Callable[..., object], name: str, value: object) -> None:
    """Asserts that a value is rejected with the name of the setting and the allowed values."""
    if name in STARTS and isinstance(maker, partial):
        given = {key: kept for key, kept in maker.keywords.items() if key not in STARTS}
        maker = partial(maker.func, *maker.args, **given)
    with pytest.raises(
        ValueError, match=rf"\b{name}\b.*((nan|inf).*allowed: |must be .*got .*(nan|inf))"
    ) as caught:
        maker(**{name: value})
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize("maker", [*settings(), *OTHERS], ids=name_of)
def test_numbers_are_finite(maker: Callable[..., object]) -> None:
    for name, parameter in inspect.signature(maker).parameters.items():
        for bad in (math.nan, math.inf, -math.inf):
            if (value := spoiled(parameter.annotation, bad)) is not None:
                refuses(maker, name, value)


@pytest.mark.parametrize("maker", settings(), ids=name_of)
def test_counts_are_whole_numbers(maker: Callable[..., object]) -> None:
    for name, parameter in inspect.signature(maker).parameters.items():
        if parameter.annotation is int:
            refuses(maker, name, math.nan)
            with pytest.raises(ValueError, match=rf"^{name} must be an integer .*\(got 2\.5\)"):
                maker(**{name: 2.5})


def test_all_kinds_are_tested() -> None:
    """At least those of the configurations, with numbers that were once accepted."""
    looked_at = {name_of(maker): inspect.signature(maker).parameters for maker in settings()}
    assert {
        "ActSettings",
        "DiffusionSettings",
        "EnergySettings",
        "FlowSettings",
        "ObservationSettings",
    } <= set(looked_at)
    assert {"FeatureMapSettings", "KeypointSettings", "PlainVisionSettings"} <= set(looked_at)
    energy = looked_at["EnergySettings"]
    assert all(
        spoiled(energy[name].annotation, math.nan)
        for name in ("temperature", "refinement_scale", "ranking_weight")
    )


def test_pairs_of_a_trainer() -> None:
    with pytest.raises(
        ValueError,
        match=r"trainer\.betas is \[0\.9, 1\.0\]; allowed: a pair, each a number of at least 0",
    ):
        TrainerSettings(steps=1, batch_size=1, betas=(0.9, 1.0))
    assert (
        TrainerSettings(
            steps=1, batch_size=1, learning_rate=0, ema_decay=1, warmup_steps=0
        ).learning_rate
        == 0
    )
