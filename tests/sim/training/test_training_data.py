"""A policy decides its windows; missing inputs are errors before the training."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.policies.conftest import model_configuration
from tests.policies.demonstrations import CONTRACT, TEXTS, episode, make_store, observation_at

from stringline.datasets.loading.mixture import MixedWindows, Source
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore
from stringline.encoders.training.checkpoint import load_description
from stringline.encoders.training.trainer import Trainer
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.checkpoints.load import build_policy, load_policy
from stringline.policies.execution.execution import ChunkExecutor, Execution
from stringline.sim.train import train_policy
from stringline.sim.training.training_data import TrainingData, WindowBatches, sources_of
from stringline.sim.training.training_settings import TrainingSettings


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    """Five episodes; the last one, which is held out, has an instruction of its own."""
    store = make_store(tmp_path_factory.mktemp("data") / "store", 4)
    store.write(episode(4), EpisodeAttributes(CONTRACT, "move", 4, True, instruction="wave"))
    return store


def trained_on(data: TrainingData, *overrides: str) -> ChunkPolicy:
    model = model_configuration(*overrides)
    built = build_policy(model, data.contract, data.statistics(model))
    assert isinstance(built, ChunkPolicy)
    return built


def tensors(batch: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {key: torch.from_numpy(value) for key, value in batch.items()}


LOOKING_BACK = ("+history=state", "policy.observation_encoder.history.ages_s=[0.16,0.08]")


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("images", ["true", "false"])
def test_windows_have_the_inputs_of_the_policy(
    store: EpisodeStore, mixed: bool, images: str
) -> None:
    """Stores and mixtures work with other action spaces, a history and instructions."""
    data = TrainingData([Source(store.path), Source(store.path, 2.0)] if mixed else store, 1)
    past = (*LOOKING_BACK, f"policy.observation_encoder.history.images={images}")
    policy = trained_on(data, "+action=relative_joints", "+instruction=task", *past)
    for names in (data.training, data.held_out):
        windows = data.windows_for(policy, names)
        assert windows.settings.past == (8, 4)
        assert windows.settings.chunk == policy.chunk
        batch = tensors(windows.batch(np.arange(len(windows))))
        assert set(batch) >= {f"past/{key}" for key in policy.observation_encoder.past_keys}
        assert ("past/rgb/overhead" in batch) == (images == "true")
        assert policy.loss(batch).isfinite()
    assert policy.observation_encoder.instruction is not None
    assert set(policy.observation_encoder.instruction.names) == {*TEXTS, "wave"}, (
        "probes ask for what is held out, too"
    )


@pytest.mark.parametrize("mixed", [False, True])
def test_the_time_of_holding_is_in_seconds(store: EpisodeStore, mixed: bool) -> None:
    data = TrainingData([Source(store.path)] if mixed else store, 0)
    policy = trained_on(data)
    inside = data.windows_for(policy, data.training)
    held = data.windows_for(policy, data.training, pad_last_action_s=0.1)
    before, after = (each.batch([len(each) - 1])["action_mask"].sum() for each in (inside, held))
    assert before < policy.chunk
    assert after == min(before + round(0.1 * policy.contract.control_hz), policy.chunk)


def test_a_camera_that_the_data_lack_is_named(store: EpisodeStore, tmp_path: Path) -> None:
    """At the construction of a policy, and for an existing policy with other data."""
    data = TrainingData(store, 0)
    policy = trained_on(data)
    with pytest.raises(
        ValueError,
        match=r"no camera 'ceiling'. .*Allowed: overhead, table, wrist_left, wrist_right"
        r".* The option policy.observation_encoder.cameras sets the cameras of a policy; null: all",
    ):
        trained_on(data, "policy.observation_encoder.cameras=[ceiling]")
    fewer = EpisodeStore.create(tmp_path / "fewer")
    arrays = {key: value for key, value in episode(0).items() if not key.endswith("/wrist_left")}
    contract = CONTRACT.with_cameras(
        *(camera for camera in CONTRACT.cameras if camera.name != "wrist_left")
    )
    fewer.write(arrays, EpisodeAttributes(contract, "move", 0, True))
    other = TrainingData(fewer, 0)
    with pytest.raises(
        ValueError,
        match=(
            r"fewer do not fit the policy. There is no camera 'wrist_left'. .*Allowed: overhead, "
            r"table, wrist_"
        ),
    ):
        other.windows_for(policy, other.training)
    flat = EpisodeStore.create(tmp_path / "flat")
    arrays = {key: value for key, value in episode(0).items() if key != "depth/overhead"}
    cameras = (
        replace(camera, depth=None if camera.name == "overhead" else camera.depth)
        for camera in CONTRACT.cameras
    )
    flat.write(arrays, EpisodeAttributes(CONTRACT.with_cameras(*cameras), "move", 0, True))
    other = TrainingData(flat, 0)
    with pytest.raises(ValueError, match=r"camera 'overhead': depth is required, but not offered"):
        other.windows_for(policy, other.training)


@pytest.mark.parametrize("mixed", [False, True])
def test_a_history_longer_than_all_episodes_is_refused(store: EpisodeStore, mixed: bool) -> None:
    data = TrainingData([Source(store.path)] if mixed else store, 0)
    policy = trained_on(
        data, "+history=state", "policy.observation_encoder.history.ages_s=[0.48,0.1]"
    )
    with pytest.raises(
        ValueError,
        match=r"past is .*, but the longest episode of .*store has 24",
    ):
        data.windows_for(policy, data.training)


@pytest.mark.parametrize("mixed", [False, True])
def test_a_chunk_longer_than_all_episodes_is_refused(store: EpisodeStore, mixed: bool) -> None:
    data = TrainingData([Source(store.path)] if mixed else store, 1)
    longest = max(store.episode(name).steps for name in data.training[0])
    data.check_chunk(trained_on(data, f"policy.chunk={longest}"))
    longer = trained_on(data, f"policy.chunk={longest + 10}")
    with pytest.raises(ValueError, match=f"policy.chunk is {longest + 10}; .* up to {longest}"):
        data.check_chunk(longer)
    data.check_chunk(longer, pad_last_action_s=10 / data.contract.control_hz)


def test_data_without_motion_are_refused(tmp_path: Path) -> None:
    """Actions that never change are an error in any action space."""
    still = EpisodeStore.create(tmp_path / "still")
    arrays = episode(0)
    arrays["action"] = np.broadcast_to(arrays["action"][:1], arrays["action"].shape).copy()
    arrays["joints/position"] = arrays["action"].copy()
    still.write(arrays, EpisodeAttributes(CONTRACT, "move", 0, True))
    data = TrainingData(still, 0)
    build: Callable[..., ChunkPolicy] = trained_on
    for action in ("absolute", "relative_joints"):
        with pytest.raises(
            ValueError,
            match=r"have zero range in each of the 14 dimensions .*no action in the data moves",
        ):
            build(data, f"+action={action}")


def test_history_and_instructions_are_trained_and_recorded(
    store: EpisodeStore, tmp_path: Path
) -> None:
    """A run with history, instructions and another action space; plans depend on instructions."""
    model = model_configuration("+action=relative_joints", "+instruction=task", *LOOKING_BACK)
    trainer = Trainer(
        steps=8,
        batch_size=4,
        learning_rate=1e-2,
        warmup_steps=1,
        ema_decay=0.1,
        probe_every=8,
        save_every=8,
        precision="no",
    )
    train_policy(model, store, trainer, tmp_path, TrainingSettings(held_out=1))
    policy = load_policy(tmp_path / "checkpoint")
    plans = []
    for text in TEXTS:
        session = ChunkExecutor(policy, 0, Execution(), execute_steps=None, instruction=text)
        for step in (0, 4, 8):
            plan = session.plan(observation_at(episode(0), step))
        plans.append(plan.action)
    assert plans[0].shape == (8, 14)
    assert not np.array_equal(plans[0], plans[1])


def test_robot_models_of_recordings_are_known(store: EpisodeStore, tmp_path: Path) -> None:
    """Simulated episodes name the model; older recordings are of primitives.

    The checkpoint keeps it.
    """
    assert TrainingData(store, 1).robot_models() == []
    drawn = EpisodeStore.create(tmp_path / "drawn")
    for seed, recipe in enumerate(({"task": "move"}, {"task": "move", "robot_model": "menagerie"})):
        drawn.write(
            episode(seed), EpisodeAttributes(CONTRACT, "move", seed, True, extra={"recipe": recipe})
        )
    assert TrainingData(drawn, 0).robot_models() == ["menagerie", "primitives"]
    trainer = Trainer(steps=1, batch_size=2, probe_every=100, precision="no", warmup_steps=1)
    train_policy(model_configuration(), drawn, trainer, tmp_path / "run")
    record = load_description(tmp_path / "run" / "checkpoint")["training"]
    assert record["robot_models"] == ["menagerie", "primitives"]
    assert record["tasks"] == {"move": ""}


@pytest.mark.parametrize(
    ("stores", "message"),
    [
        (
            [{"pfad": "x"}],
            (
                r"dataset.stores has an entry with \['pfad'\]; required: path; allowed: "
                r"weight, "
                r"cameras"
            ),
        ),
        (
            [{"path": "x", "wieght": 2}],
            r"dataset.stores has an entry with \['path', 'wieght'\]; required: path; allowed: ",
        ),
        (
            ["x"],
            (
                r"dataset.stores has the entry 'x'; allowed: a list of mappings, such as \[{path: "
                r"runs/a, weight: 2}"
            ),
        ),
        ("x", r"dataset.stores is 'x'; allowed: a list of mappings"),
        (3, r"dataset.stores is 3; allowed: a list of mappings"),
        (
            [{"path": "x", "weight": "much"}],
            r"The weight of x must be a number above 0 \(got 'much'\)",
        ),
        ([{"path": "x", "weight": 0}], r"The weight of x must be a number above 0 \(got 0\)"),
        (
            [{"path": "x", "cameras": "top"}],
            r"The cameras of x are 'top'; allowed: the camera of each slot, such as {overhead",
        ),
    ],
)
def test_wrong_mixtures_are_refused(stores: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sources_of(stores)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"held_out": -1}, r"held_out must be an integer of at least 0 \(got -1\)"),
        (
            {"validation_windows": -1},
            r"validation_windows must be an integer of at least 0 \(got -1\)",
        ),
        (
            {"oversample_first_s": float("nan")},
            r"oversample_first_s must be a number of at least 0 \(got nan\)",
        ),
        ({"oversample_factor": 0.0}, r"oversample_factor must be a number above 0 \(got 0.0\)"),
        (
            {"pad_last_action_s": -0.5},
            r"pad_last_action_s must be a number of at least 0 \(got -0.5\)",
        ),
    ],
)
def test_numbers_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingSettings(**changes)


@pytest.mark.parametrize("mixed", [False, True])
def test_tasks_are_drawn_equally_often_by_any_number_of_readers(
    store: EpisodeStore, tmp_path: Path, mixed: bool
) -> None:
    """A continued run draws the same windows; in a mixture the weights act within a task."""
    few = EpisodeStore.create(tmp_path / "few") if mixed else store
    if mixed:
        few.write(episode(7), EpisodeAttributes(CONTRACT, "push", 7, True))
    sources = [Source(store.path, 5.0), Source(few.path)]
    windows = (
        MixedWindows(sources, [store, few], chunk=8)
        if mixed
        else Windows(store, chunk=8, names=list(store.names()))
    )
    batches = WindowBatches(windows, 10, seed=0, equal_tasks=True, num_workers=3)
    steps = 2 * len(windows) // 10
    with contextlib.closing(batches.stream(0, steps)) as stream:
        drawn = [batch["episode"].numpy() for batch in stream]
    tasks = np.asarray(windows.tasks)[np.concatenate(drawn)]
    named = np.unique(np.asarray(windows.tasks))
    shares = [np.mean(tasks == task) for task in named]
    assert len(named) == (4 if mixed else 3), "instructions of the store, and the task of the other"
    np.testing.assert_allclose(shares, 1 / len(named), atol=0.1)
    with contextlib.closing(batches.stream(steps - 2, steps)) as stream:
        again = [batch["episode"].numpy() for batch in stream]
    np.testing.assert_array_equal(again, drawn[-2:])


def test_equal_tasks_must_be_a_truth_value() -> None:
    with pytest.raises(ValueError, match="dataset.equal_tasks is 'tasks'; allowed: true, false"):
        TrainingSettings(equal_tasks="tasks")  # type: ignore[arg-type]
