"""Training from a store: it learns, continues, and refuses to mix runs."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.sim.points import AUGMENTATION, CAMERA, CONTRACT, MODEL, fill

from stringline import EpisodeAttributes, EpisodeStore, Trainer, load_policy, train_policy
from stringline.encoders.training.checkpoint import load_description
from stringline.encoders.training.settings import stored_fingerprint
from stringline.policies.checkpoints.training_record import RecordedExecution, TrainingRecord
from stringline.policies.execution.execution import Execution
from stringline.sim.training.training_data import begun_episodes, sources_of
from stringline.sim.training.training_settings import TrainingSettings


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    """Twenty episodes in which the brightness of an object is the target of the revolute joint."""
    store = EpisodeStore.create(tmp_path_factory.mktemp("bars") / "store")
    fill(store, range(20))
    return store


@pytest.mark.slow
def test_it_learns_from_images(store: EpisodeStore, tmp_path: Path) -> None:
    trainer = Trainer(
        steps=120,
        batch_size=16,
        learning_rate=3e-3,
        probe_every=120,
        ema_decay=0.9,
        save_every=120,
        precision="no",
    )
    history = train_policy(MODEL, store, trainer, tmp_path)
    assert dict(history.probes())[119]["explained"] > 0.8
    assert load_policy(tmp_path / "checkpoint").contract == CONTRACT


def test_a_checkpoint_carries_what_runs_of_it_need(tmp_path: Path) -> None:
    """The worlds of the data, their instructions and digests, execution and recipe."""
    store = EpisodeStore.create(tmp_path / "store")
    fill(store, range(2))
    plain = store.episodes()[0]
    worlds = [{"task": "push", "frame_hz": 10.0, "options": {"dim_light": hz}} for hz in (0.5, 1.0)]
    for seed, world in enumerate((*worlds, worlds[0]), 10):
        text = f"push {seed % 2}"
        attributes = EpisodeAttributes(
            CONTRACT, "push", seed, success=True, instruction=text, extra={"recipe": world}
        )
        store.write(dict(plain.arrays), attributes)
    execution = RecordedExecution(Execution("stop_and_go"), 3)
    recipe = {"choices": {"policy": "diffusion"}, "options": ["trainer.steps=1"]}
    settings = TrainingSettings(execution=execution, recipe=recipe)
    trainer = Trainer(steps=1, batch_size=2, warmup_steps=1, precision="no")
    train_policy(MODEL, store, trainer, tmp_path / "run", settings)
    description = load_description(tmp_path / "run" / "checkpoint")
    assert description["contract"]["embodiment"] == "post"
    assert [camera["name"] for camera in description["contract"]["cameras"]] == ["overhead"]
    assert description["training"] == {
        "episodes": 4,
        "windows": 20,
        "steps": 1,
        "batch_size": 2,
        "seed": 0,
        "tasks": {"point": "", "push": "push 0"},
        "stores": [{"episodes": 5, "digest": store.digest()}],
        "held_out": [store.digest(store.names()[-1:])],
        "instructions": ["push 0", "push 1"],
        "robot_models": ["primitives"],
        "worlds": worlds,
        "execution": {"name": "stop_and_go", "delay_s": 0.0, "execute_steps": 3},
        "recipe": recipe,
    }
    record = TrainingRecord.read(tmp_path / "run" / "checkpoint")
    assert (record.execution, record.frame_rates) == (execution, (10.0,))


@pytest.mark.slow
def test_other_settings_are_refused_in_the_same_place(store: EpisodeStore, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"steps": 2, "batch_size": 2, "save_every": 1, "probe_every": 2}
    train_policy(MODEL, store, Trainer(**settings), tmp_path)
    train_policy(MODEL, store, Trainer(**settings), tmp_path)
    other: dict[str, Any] = settings | {"learning_rate": 0.1, "steps": 3}
    fewer: dict[str, Any] = settings | {"steps": 1}
    with pytest.raises(
        ValueError,
        match=r"other settings \(trainer.steps, trainer.learning_rate\). Choose another output",
    ):
        train_policy(MODEL, store, Trainer(**other), tmp_path)
    with pytest.raises(ValueError, match=r"run of 2 steps; got trainer.steps=1; allowed: 2, or mo"):
        train_policy(MODEL, store, Trainer(**fewer), tmp_path)


@pytest.mark.slow
def test_the_steps_of_a_run_can_be_raised(
    store: EpisodeStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A raised run is an unfinished one: a stop continues it, and its records name both numbers."""
    settings: dict[str, Any] = {"batch_size": 2, "save_every": 1, "probe_every": 2}
    run = tmp_path / "run"
    train_policy(MODEL, store, Trainer(steps=2, **settings), run)
    assert begun_episodes(run, str(store.path)) is None, "it is finished"
    with caplog.at_level("INFO", logger="stringline"):
        history = train_policy(MODEL, store, Trainer(steps=4, **settings), run)
    assert "The run of 2 steps continues to 4; the learning rate is now that of 4" in caplog.text
    assert [step for step, _ in history.losses()] == [0, 1, 2, 3]
    record = load_description(run / "checkpoint")["training"]
    assert (record["steps"], record["earlier_steps"]) == (4, [2])
    assert stored_fingerprint(run)["trainer"]["steps"] == 4
    train_policy(MODEL, store, Trainer(steps=6, **settings), run)
    assert load_description(run / "checkpoint")["training"]["earlier_steps"] == [2, 4]
    shutil.rmtree(run / "state")
    with pytest.raises(ValueError, match=r"has no state of the run of 6 steps.*initialise_from="):
        train_policy(MODEL, store, Trainer(steps=8, **settings), run)


def test_a_run_does_not_continue_with_another_precision(
    store: EpisodeStore, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"steps": 2, "batch_size": 2, "save_every": 1, "probe_every": 2}
    train_policy(MODEL, store, Trainer(**settings, precision="no"), tmp_path)
    with pytest.raises(ValueError, match=r"other settings \(trainer.precision\)"):
        train_policy(MODEL, store, Trainer(**settings, precision="bf16"), tmp_path)


def test_other_data_are_refused_in_the_same_place(tmp_path: Path) -> None:
    growing = EpisodeStore.create(tmp_path / "store")
    fill(growing, range(4))
    settings: dict[str, Any] = {"steps": 2, "batch_size": 2, "save_every": 1, "probe_every": 2}
    train_policy(MODEL, growing, Trainer(**settings), tmp_path / "run")
    before = (tmp_path / "run" / "checkpoint" / "checkpoint.yaml").read_bytes()
    fill(growing, range(4, 8))
    with pytest.raises(ValueError, match=r"other settings \(training"):
        train_policy(MODEL, growing, Trainer(**settings), tmp_path / "run")
    assert (tmp_path / "run" / "checkpoint" / "checkpoint.yaml").read_bytes() == before
    (tmp_path / "run" / "run.yaml").write_text("")
    with pytest.raises(ValueError, match=r"run.yaml is damaged. Choose another output"):
        train_policy(MODEL, growing, Trainer(**settings), tmp_path / "run")


def test_an_empty_store_is_refused(tmp_path: Path) -> None:
    empty = EpisodeStore.create(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"has no episodes"):
        train_policy(MODEL, empty, Trainer(steps=1, batch_size=1), tmp_path / "run")


@pytest.mark.slow
def test_augmentation_is_a_choice_of_the_run(store: EpisodeStore, tmp_path: Path) -> None:
    """No transforms change nothing; others change the losses; a run keeps its augmentation."""
    augmentation = AUGMENTATION

    def losses(name: str, chosen: dict[str, Any] | None) -> list[float]:
        trainer = Trainer(steps=3, batch_size=4, probe_every=100, precision="no", warmup_steps=1)
        return [
            loss
            for _, loss in train_policy(
                MODEL, store, trainer, tmp_path / name, TrainingSettings(augmentation=chosen)
            ).losses()
        ]

    plain = losses("plain", None)
    assert losses("empty", augmentation | {"transforms": []}) == plain
    augmented = losses("augmented", augmentation)
    assert augmented != plain
    assert losses("again", augmentation) == augmented
    with pytest.raises(ValueError, match=r"other settings \(augmentation\)"):
        losses("plain", augmentation)
    with pytest.raises(ValueError, match=r"augmentation is a ColourOnly; allowed: Augmentation"):
        losses("no", {"_target_": "stringline.ColourOnly"})


@pytest.mark.slow
def test_textures_need_segments(
    store: EpisodeStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Textures change the losses where segments are stored; without any, a warning says so."""
    blind = EpisodeStore.create(tmp_path / "blind")
    for episode in store.episodes():
        arrays = {key: value for key, value in episode.arrays.items() if "segment" not in key}
        blind.write(arrays, episode.attributes)
    textures = {
        "_target_": "stringline.Augmentation",
        "transforms": [{"_target_": "stringline.TextureOverlay", "background": 1.0}],
    }

    def losses(data: EpisodeStore, name: str, chosen: dict[str, Any] | None) -> list[float]:
        trainer = Trainer(steps=3, batch_size=4, probe_every=100, precision="no", warmup_steps=1)
        settings = TrainingSettings(augmentation=chosen)
        history = train_policy(MODEL, data, trainer, tmp_path / name, settings)
        return [loss for _, loss in history.losses()]

    plain = losses(store, "plain", None)
    assert losses(store, "textured", textures) != plain
    assert "segments" not in caplog.text
    assert losses(blind, "without", textures) == plain
    assert "no textures in the images of overhead: not all episodes have segments" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "actions",
    [{}, {"action_space": {"_target_": "stringline.RelativeJoints", "_partial_": True}}],
    ids=["absolute", "relative"],
)
def test_a_mixture_of_stores_with_different_cameras_trains_and_continues(
    store: EpisodeStore, tmp_path: Path, actions: dict[str, Any]
) -> None:
    """The policy has the slots of all stores; weights and cameras are part of the fingerprint.

    Statistics of relative actions are those of windows, which begin with the images of the slots.
    """
    model = MODEL | actions
    other = EpisodeStore.create(tmp_path / "other")
    renamed = CONTRACT.with_cameras(replace(CAMERA, name="top"), replace(CAMERA, name="side"))
    for name in store.names():
        arrays = dict(store.episode(name).arrays)
        both = {
            key.replace("/overhead", f"/{new}"): value
            for new in ("top", "side")
            for key, value in arrays.items()
        }
        other.write(both, EpisodeAttributes(renamed, "point", 0, success=True))
    sources = sources_of(
        [
            {"path": str(store.path)},
            {"path": other.path, "weight": 3, "cameras": {"overhead": "top", "side": "side"}},
        ]
    )
    trainer = Trainer(steps=3, batch_size=6, save_every=1, probe_every=3, precision="no")
    history = train_policy(model, sources, trainer, tmp_path / "run")
    assert "explained" in dict(history.probes())[2]
    assert [
        camera.name for camera in load_policy(tmp_path / "run" / "checkpoint").contract.cameras
    ] == ["overhead", "side"]
    assert train_policy(model, sources, trainer, tmp_path / "run").losses() == history.losses()
    with pytest.raises(ValueError, match=r"other settings \(store\)"):
        train_policy(
            model, [sources[0], replace(sources[1], weight=1.0)], trainer, tmp_path / "run"
        )
    with pytest.raises(ValueError, match="needs at least one store"):
        train_policy(model, [], trainer, tmp_path / "none")
