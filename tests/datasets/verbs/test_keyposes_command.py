"""`stringline-data keyposes` and `clouds`, from the command line."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tests.datasets.conftest import DataCommand
from tests.datasets.loading.grasp_recordings import grasp_store

from stringline.datasets.command.choices import CONFIGS, completed
from stringline.datasets.loading.keypose_modes import ModeSettings
from stringline.datasets.loading.window_settings import KeyposeSettings
from stringline.datasets.loading.workspace_clouds import CloudSettings, cache_folder
from stringline.datasets.store.store import EpisodeStore
from stringline.policies.checkpoints.load import build_policy
from stringline.sim.training.training_data import TrainingData

NESTED = {"keyposes": (KeyposeSettings, ModeSettings), "clouds": (KeyposeSettings, CloudSettings)}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    return grasp_store(tmp_path_factory.mktemp("grasps") / "store", (0.02,) * 4 + (-0.02,) * 3)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("verb", sorted(NESTED))
def test_defaults_are_those_of_a_training(verb: str) -> None:
    plain = completed(CONFIGS, f"data/{verb}")
    for kind in NESTED[verb]:
        for field in fields(kind):
            assert plain[field.name] == field.default, field.name
    policy = completed(CONFIGS, "policy/keyposes")
    encoder = completed(CONFIGS, "policy/observation_encoder/points")
    for trained in (policy["events"], encoder["clouds"]):
        assert {key: plain.get(key, value) for key, value in trained.items()} == trained
    dataset = completed(CONFIGS, "dataset/store")
    assert plain.get("held_out", dataset["held_out"]) == dataset["held_out"]


@pytest.mark.slow
def test_the_report_and_the_file(
    store: EpisodeStore, tmp_path: Path, data_command: DataCommand
) -> None:
    output = tmp_path / "new" / "keyposes.json"
    _, printed, _ = data_command("keyposes", f"store={store.path}", f"output={output}")
    assert f"{store.path}: 14 keyposes in 7 of 7 episodes." in printed
    assert "7  100 %  left closes, left opens" in printed
    rows = [line.split() for line in printed.splitlines() if line.startswith("   mode")]
    assert [row[2:5] for row in rows[:2]] == [["4", "57", "%"], ["3", "43", "%"]]
    plain: dict[str, Any] = json.loads(output.read_text())
    assert plain["sequences"] == {"left closes, left opens": store.names()}
    assert [mode["count"] for mode in plain["events"][0]["modes"]] == [4, 3]
    assert plain["settings"]["stroke"] == KeyposeSettings().stroke
    assert plain["without"] == {}


@pytest.mark.slow
def test_without_depth_the_report_says_so(tmp_path: Path, data_command: DataCommand) -> None:
    blind = grasp_store(tmp_path / "blind", (0.02, -0.02), blind=True)
    _, printed, _ = data_command("keyposes", f"store={blind.path}")
    assert "no camera has depth and calibration" in printed.replace("\n", " ")


@pytest.mark.slow
def test_episodes_without_keyposes_end_the_command_with_the_way_out(
    tmp_path: Path, data_command: DataCommand
) -> None:
    mixed = grasp_store(tmp_path / "mixed", (0.02,), still=2)
    still = mixed.names()[1:]
    status, out, error = data_command("keyposes", f"store={mixed.path}")
    assert status == 2
    for name in still:
        assert f"{name}: There is no keypose in" in out
    last = error.splitlines()[-1]
    assert "2 of 3 episodes have no keyposes" in last
    assert "stroke, rest_m or stops=always" in last
    (removal,) = [part for part in last.split("'") if part.startswith("episodes=")]
    assert data_command("delete", f"store={mixed.path}", removal)[0] == 0
    assert mixed.names() == [name for name in mixed.names() if name not in still]
    assert data_command("keyposes", f"store={mixed.path}")[0] == 0


@pytest.mark.slow
def test_a_training_finds_the_clouds(store: EpisodeStore, data_command: DataCommand) -> None:
    words = ("held_out=2", "points=256", "stroke=0.2")
    _, printed, _ = data_command("clouds", f"store={store.path}", *words)
    made = {file: file.stat().st_mtime_ns for file in cache_folder().rglob("*.npy")}
    assert len(made) == 7
    assert f"{len(made)} clouds of 7 episodes" in printed, "one image each"
    chosen = ["policy.observation_encoder.clouds.points=256", "policy.events.stroke=0.2"]
    with initialize_config_module("stringline.configs", version_base="1.3"):
        composed = compose("train", ["training_recipe=keyposes", *chosen])
    plain = OmegaConf.to_container(composed.policy, resolve=True)
    assert isinstance(plain, dict)
    model = {str(key): value for key, value in plain.items()}
    data = TrainingData(store, 2)
    policy = build_policy(model, data.contract, data.statistics(model))
    for names in (data.training, data.held_out):
        windows = data.windows_for(policy, names)
        assert np.isfinite(windows.batch([0])["cloud/points"]).all()
    assert set(cache_folder().rglob("*.npy")) == set(made), "no further clouds"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["cameras=[overheat]"], "There is no camera 'overheat'. Did you mean 'overhead'"),
        (["points=0"], "points must be an integer of at least 1 (got 0)"),
        (["stroke=-1"], "stroke must be a number above 0 (got -1)"),
        (["stops=sometimes"], "There is no choice of stops 'sometimes'"),
    ],
)
def test_a_mistake_is_answered_in_one_line(
    store: EpisodeStore, arguments: list[str], answer: str, data_command: DataCommand
) -> None:
    status, _, error = data_command("clouds", f"store={store.path}", *arguments)
    assert status == 2
    assert answer in error
    assert error.count("\n") == 1
