"""A checkpoint builds networks of trusted packages, and nothing else."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.extensions.trust import Trust, UntrustedPackageError, remember
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.checkpoints.load import build_policy, load_policy, save_policy

WriteModule = Callable[[str, str], Path]
Configure = Callable[..., dict[str, object]]

POLICY = """
from __future__ import annotations
from dataclasses import dataclass
from torch import nn
from stringline import ChunkPolicy, MetricPlaces, PolicySettings, masked_mean

@dataclass(frozen=True, kw_only=True)
class MeanSettings(PolicySettings):
    hidden: int = 16

class MeanPolicy(ChunkPolicy):
    def __init__(self, settings: MeanSettings, contract, statistics):
        super().__init__(settings, contract, statistics)
        self.read = nn.Linear(self.observation_encoder.dim, self.chunk * self.action_dim)

    def chunk_loss(self, conditioning, action, mask):
        return masked_mean((self.generate(conditioning, None) - action).abs()[:, None], mask)

    def generate(self, conditioning, generator, prefix=None):
        mean = conditioning.tokens.mean(dim=1)
        return self.read(mean).unflatten(1, (self.chunk, self.action_dim))

class Places(MetricPlaces): pass
class Plain: pass
def make(**arguments): return Plain()
"""


@pytest.fixture
def foreign(configuration: Configure) -> dict[str, object]:
    """The configuration of a policy whose class and coordinates are of another package."""
    model = configuration()
    encoder = model["observation_encoder"]
    assert isinstance(encoder, dict)
    encoder["coordinates"] = {"_target_": "their_package.policy:Places"}
    parts = ("observation_encoder", "chunk", "normalisation")
    kept = {name: model[name] for name in parts if name in model}
    return {"_target_": "their_package.policy:MeanPolicy", "hidden": 8, **kept}


def test_a_policy_of_a_trusted_package_makes_a_round_trip(
    tmp_path: Path,
    write_module: WriteModule,
    foreign: dict[str, object],
    contract: Contract,
    statistics: Statistics,
    observe: Callable[[int], dict[str, Array]],
) -> None:
    mark = write_module("their_package.policy", POLICY)
    trust = Trust(packages=frozenset({"their_package"}))
    torch.manual_seed(0)
    policy = build_policy(foreign, contract, statistics, trust).eval()
    save_policy(tmp_path / "c", policy, foreign, {})
    mark.unlink()
    with pytest.raises(UntrustedPackageError, match="add trust=their_package"):
        load_policy(tmp_path / "c")
    again = load_policy(tmp_path / "c", trust=("their_package",))
    first, second = (one.session(0).plan(observe(0)).action for one in (policy, again))
    np.testing.assert_array_equal(first, second)
    remember(["their_package"])
    load_policy(tmp_path / "c")


@pytest.fixture
def crafted(
    tmp_path: Path, configuration: Configure, contract: Contract, statistics: Statistics
) -> Callable[[str, str], Path]:
    """Writes the description of a checkpoint with one class replaced by another target."""
    parts = {"contract": contract.to_dict(), "statistics": statistics.to_dict()}
    text = yaml.safe_dump({"format": 1, "model": configuration(), **parts})
    (tmp_path / "c").mkdir()

    def craft(replaced: str, target: str) -> Path:
        assert f"stringline.{replaced}" in text
        where = tmp_path / "c" / "checkpoint.yaml"
        where.write_text(text.replace(f"stringline.{replaced}", target))
        return where.parent

    return craft


REFUSED = {
    "os:system": "'os' is part of Python",
    "subprocess:Popen": "'subprocess' is part of Python",
    "builtins:eval": "'builtins' is part of Python",
    "builtins.eval": "only build classes of stringline",
    "stringline.sim:__builtins__": "is not the name of a class",
    "stringline.sim.train:run": "named stringline.NAME, without a colon",
    "stringline.load_policy": "stringline.load_policy is not a class derived from Module",
    "torch.nn:Linear": "package 'torch', which is not trusted",
    "their_package.policy:Places": "package 'their_package', which is not trusted",
    "their_packages:Places": "package 'their_packages', which is not trusted",
}


@pytest.mark.parametrize("replaced", ["DiffusionPolicy", "MetricPlaces"])
def test_crafted_checkpoints_build_and_import_nothing(
    replaced: str, crafted: Callable[[str, str], Path], write_module: WriteModule
) -> None:
    mark = write_module("their_package.policy", POLICY)
    for target, message in REFUSED.items():
        with pytest.raises(ValueError, match=message) as caught:
            load_policy(crafted(replaced, target), trust=("their", "their_package_", "a"))
        assert "\n" not in str(caught.value)
    assert not mark.exists()


NO_NETWORKS = {
    "make": "their_package.policy:make is not a class derived from Module",
    "Plain": "their_package.policy:Plain is not a class derived from Module",
    "nn": "their_package.policy:nn is not a class derived from Module",
    "dataclass": "their_package.policy:dataclass is not a class derived from Module",
    "MetricPlaces": "is defined in stringline.encoders.coordinates.coordinates",
    "Placse": r"no class in their_package.policy 'Placse'. Did you mean 'Places'",
}


def test_a_trusted_package_gives_networks_only(
    crafted: Callable[[str, str], Path], write_module: WriteModule
) -> None:
    write_module("their_package.policy", POLICY)
    for name, message in NO_NETWORKS.items():
        where = crafted("MetricPlaces", f"their_package.policy:{name}")
        with pytest.raises(ValueError, match=message):
            load_policy(where, trust=("their_package",))


def test_a_trusted_network_that_is_not_a_policy_is_refused(
    crafted: Callable[[str, str], Path], write_module: WriteModule
) -> None:
    write_module(
        "their_package.policy",
        POLICY + "class Any(nn.Module):\n    def __init__(self, **arguments): super().__init__()\n",
    )
    where = crafted("DiffusionPolicy", "their_package.policy:Any")
    with pytest.raises(ValueError, match=r"'their_package.policy:Any' is not a policy"):
        load_policy(where, trust=("their_package",))


def test_a_missing_package_is_named(crafted: Callable[[str, str], Path]) -> None:
    where = crafted("MetricPlaces", "not_installed.policy:Places")
    with pytest.raises(ValueError, match=r"no module 'not_installed.policy' on Python's path"):
        load_policy(where, trust=("not_installed",))
    with pytest.raises(UntrustedPackageError, match=re.escape(str(where))):
        load_policy(where)


def test_trust_is_a_sequence_of_names(crafted: Callable[[str, str], Path]) -> None:
    with pytest.raises(ValueError, match=r"trust is 'mine'; allowed: .* such as \('mine',\)"):
        load_policy(crafted("MetricPlaces", "mine:Places"), trust="mine")
