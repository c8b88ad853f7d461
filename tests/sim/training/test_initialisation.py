"""A run that begins with the weights of another."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from tests.sim.points import CONTRACT, MODEL, fill

from stringline.datasets.contract.contract import ActionDimension
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore
from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.perception_network import build_network, save_network
from stringline.encoders.training.trainer import Trainer
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.checkpoints.load import load_policy
from stringline.sim.train import train_policy
from stringline.sim.training.training_settings import Initialisation, TrainingSettings

Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps."""
    folder = tmp_path_factory.mktemp("first")
    store = EpisodeStore.create(folder / "store")
    fill(store, range(5))
    train_policy(
        MODEL, store, Trainer(steps=3, batch_size=4, warmup_steps=1, precision="no"), folder / "run"
    )
    return folder / "run" / "checkpoint"


@pytest.fixture(scope="module")
def two_hinges(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    """The same with another embodiment: a second revolute joint that never moves."""
    folder = tmp_path_factory.mktemp("second")
    one, store = EpisodeStore.create(folder / "one"), EpisodeStore.create(folder / "two")
    fill(one, range(5))
    revolute = ("post/hinge", "post/second")
    contract = replace(
        CONTRACT,
        joints=revolute,
        action=tuple(ActionDimension(name, "post", "joint") for name in revolute),
    )
    for name in one.names():
        arrays = dict(one.episode(name).arrays)
        arrays |= {key: arrays[key].repeat(2, axis=1) for key in ("joints/position", "action")}
        store.write(arrays, EpisodeAttributes(contract, "point", 0, success=True))
    return store


@pytest.fixture
def begin(first: Path, tmp_path: Path) -> Callable[..., Weights]:
    """Trains with a learning rate of 0, so that a run ends with the weights that it began with."""

    def begun(store: EpisodeStore, **chosen: Any) -> Weights:
        trainer = Trainer(steps=1, batch_size=2, learning_rate=0.0, precision="no", seed=9)
        train_policy(
            MODEL,
            store,
            trainer,
            tmp_path / "run",
            TrainingSettings(initialisation=Initialisation(first, **chosen)),
        )
        return load_file(tmp_path / "run" / "checkpoint" / "weights.safetensors")

    return begun


def same(one: Weights, other: Weights) -> set[str]:
    return {
        name for name, value in one.items() if name in other and torch.equal(value, other[name])
    }


def test_everything_of_a_checkpoint_on_data_of_the_same_contract(
    first: Path, begin: Callable[..., Weights]
) -> None:
    weights = begin(EpisodeStore.open(first.parents[1] / "store"))
    assert same(weights, load_file(first / "weights.safetensors")) == set(weights)


def test_the_encoder_of_a_checkpoint(
    first: Path, begin: Callable[..., Weights], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "stringline")
    weights = begin(EpisodeStore.open(first.parents[1] / "store"), include=["observation_encoder"])
    moved = {
        name for name, value in load_file(first / "weights.safetensors").items() if value.any()
    }
    assert same(weights, load_file(first / "weights.safetensors")) & moved == {
        name for name in moved if name.startswith("observation_encoder.")
    }
    assert "loaded: observation_encoder; initialised: denoiser; unused: denoiser" in caplog.text


def test_another_embodiment_takes_all_parts_except_those_of_its_joints(
    first: Path,
    two_hinges: EpisodeStore,
    begin: Callable[..., Weights],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "stringline")
    with pytest.raises(
        ValueError,
        match=(
            r"trained for another contract. joints: 1 \(post/hinge\) is required.*"
            r"exclude=mismatched"
        ),
    ):
        begin(two_hinges)
    exclude = ["observation_encoder.embed_joints", "denoiser.embed_action", "denoiser.read_action"]
    with pytest.raises(
        ValueError,
        match=r"exclude=\[observation_encoder.embed_joints,denoiser.embed_action,denoiser.read_action\]",
    ):
        begin(two_hinges, exclude=["observation_encoder.embed_joints"])
    weights = begin(two_hinges, exclude=exclude)
    trained = load_file(first / "weights.safetensors")
    assert set(trained) - same(weights, trained) <= {
        name for name in trained if name.startswith(tuple(exclude))
    }
    assert (
        "initialised: observation_encoder.embed_joints, denoiser.embed_action, denoiser.read_action"
        in caplog.text
    )
    with pytest.raises(ValueError, match=r"holds a run with other settings \(initialisation\)"):
        begin(two_hinges, exclude="mismatched")


def test_ranges_are_those_of_the_data_or_are_kept(
    first: Path, two_hinges: EpisodeStore, begin: Callable[..., Weights], tmp_path: Path
) -> None:
    other = EpisodeStore.create(tmp_path / "store")
    fill(other, range(40, 45))
    old = load_policy(first)
    assert isinstance(old, ChunkPolicy)
    begin(other, keep_normalisation=True)
    new = load_policy(tmp_path / "run" / "checkpoint")
    assert isinstance(new, ChunkPolicy)
    assert torch.equal(new.action_range.high, old.action_range.high)
    record = yaml.safe_load((tmp_path / "run" / "checkpoint" / "checkpoint.yaml").read_text())[
        "training"
    ]["initialisation"]
    assert record == {
        "checkpoint": record["checkpoint"],
        "include": [],
        "exclude": [],
        "keep_normalisation": True,
    }
    with pytest.raises(
        ValueError, match=r"keep_normalisation=true, but joints and action of .* differ"
    ):
        begin(two_hinges, keep_normalisation=True, exclude="mismatched")


def test_an_error_leaves_no_folder(
    first: Path, tmp_path: Path, begin: Callable[..., Weights]
) -> None:
    store = EpisodeStore.open(first.parents[1] / "store")
    with pytest.raises(
        ValueError,
        match=(
            r"no part of the model to include 'observation_encodr'. Did you mean "
            r"'observation_encoder'"
        ),
    ):
        begin(store, include=["observation_encodr"])
    assert not (tmp_path / "run").exists()


def test_settings_of_the_command() -> None:
    plain = {"initialise_from": None, "include": [], "exclude": [], "keep_normalisation": False}
    assert Initialisation.of(plain, "keep_normalisation") is None
    assert Initialisation.of(
        plain | {"initialise_from": "c", "include": "observation_encoder"}
    ) == Initialisation("c", include=["observation_encoder"], exclude=[])
    with pytest.raises(
        ValueError,
        match=r"exclude needs a checkpoint; add initialise_from=CHECKPOINT",
    ):
        Initialisation.of(plain | {"exclude": "mismatched"}, "keep_normalisation")


def test_the_image_encoder_of_a_network_of_perception(first: Path, tmp_path: Path) -> None:
    """Its patches and blocks are taken; heads, CLS and the marks of cameras are not."""
    policy = load_policy(first)
    own = MODEL["observation_encoder"]
    shared = ("encoding", "coordinates", "values", "dim", "depth", "heads", "share_layers")
    encoder = {
        "_target_": "stringline.ImageEncoder",
        "_partial_": True,
        **{name: own[name] for name in shared if name in own},
    }
    model = {"_target_": "stringline.Classifier", "image_encoder": encoder}
    camera = policy.contract.cameras[0]
    contract = ImageContract(
        height=camera.height, width=camera.width, depth=True, geometry=True, names=("a", "b")
    )
    network = build_network(model, contract)
    save_network(tmp_path / "perception", network, model, {})
    before = policy.state_dict()["observation_encoder.tokenise.camera_mark"].clone()
    loaded = Initialisation(tmp_path / "perception").load(policy)
    weights = policy.state_dict()
    taken = {
        name.replace("image_encoder", "observation_encoder"): value
        for name, value in network.state_dict().items()
        if name.startswith("image_encoder.")
    }
    marks = {
        "observation_encoder.tokenise.camera_mark",
        "observation_encoder.blocks.registers",
    }
    chosen = taken.keys() - marks
    assert chosen
    assert all(torch.equal(weights[name], taken[name]) for name in chosen)
    assert torch.equal(weights["observation_encoder.tokenise.camera_mark"], before)
    assert "head" in loaded.unused
