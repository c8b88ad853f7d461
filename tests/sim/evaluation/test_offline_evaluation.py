"""Evaluation on recordings: which episodes, which errors, and what a command line may hold."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.policies.conftest import model_configuration
from tests.policies.demonstrations import CONTRACT, make_store

from stringline import ChunkPolicy, Contract, EpisodeStore, Windows
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.action_spaces.space import ContractActions
from stringline.policies.algorithms.chunk_policy import fit_remainder
from stringline.policies.checkpoints.load import (
    build_policy,
    save_policy,
)
from stringline.policies.probes.probes import MotionProbe, linear_motion
from stringline.sim.evaluate import check_no_recordings
from stringline.sim.evaluate_recordings import check_overrides, with_dataset
from stringline.sim.evaluation.offline_evaluation import (
    OfflineSettings,
    evaluate_offline,
)
from stringline.sim.report.offline_report import write_offline_report

HELD_OUT = 2


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    return make_store(tmp_path_factory.mktemp("recordings") / "store", 6)


def save(folder: Path, store: EpisodeStore, contract: Contract = CONTRACT) -> ChunkPolicy:
    """Writes a checkpoint whose training held the last two episodes out."""
    model = model_configuration("policy.observation_encoder.cameras=[overhead]")
    torch.manual_seed(0)
    policy = build_policy(model, contract, Statistics.of_episodes(store.episodes()))
    assert isinstance(policy, ChunkPolicy)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    held_out = [store.digest([name]) for name in store.names()[-HELD_OUT:]]
    save_policy(folder, policy, model, {"tasks": {"move": ""}, "held_out": held_out})
    return policy.eval()


@pytest.fixture(scope="module")
def policy(checkpoint: Path, store: EpisodeStore) -> ChunkPolicy:
    return save(checkpoint, store)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trained") / "checkpoint"


def settings(checkpoint: Path, store: EpisodeStore, **changes: object) -> OfflineSettings:
    plain = OfflineSettings(
        checkpoint=str(checkpoint), output=checkpoint.parent / "offline", dataset=store.path
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.slow
def test_held_out_episodes_are_measured_as_in_the_training(
    checkpoint: Path, policy: ChunkPolicy, store: EpisodeStore
) -> None:
    """The same windows, plans and baselines as those of the probe, and the page has them all."""
    found = evaluate_offline(settings(checkpoint, store))
    names = store.names()
    assert list(found.chosen.names) == names[-HELD_OUT:]
    assert found.chosen.why == "The 2 episodes that the training held out were used."
    others = [store.episode(name) for name in names[:-HELD_OUT]]
    linear = linear_motion(policy)
    assert linear is not None
    fit_remainder(linear, policy, ContractActions(contract=policy.contract), others)
    windows = Windows(store, policy.window_settings(), names=names[-HELD_OUT:])
    batch = {key: torch.from_numpy(x) for key, x in windows.batch(range(len(windows))).items()}
    assert found.metrics == pytest.approx(MotionProbe(batch, linear, policy.contract)(policy))
    assert {"joints_mrad/1", "grippers_mm_hold/4", "joints_mrad_linear/last"} <= set(found.metrics)
    found.write()
    write_offline_report(found)
    written = json.loads((found.settings.output / "offline.json").read_text())
    assert written["metrics"] == found.metrics
    assert list(written["grippers_mm"]) == names[-HELD_OUT:]
    page = (found.settings.output / "offline.html").read_text()
    for text in ("linear map", "Actions over time", found.chosen.why, *names[-HELD_OUT:]):
        assert text in page


@pytest.mark.slow
def test_the_choice_of_episodes_is_stated(
    checkpoint: Path, policy: ChunkPolicy, store: EpisodeStore, tmp_path: Path
) -> None:
    every = evaluate_offline(settings(checkpoint, store, episodes="all", windows=3))
    assert every.chosen.why == (
        "All 6 episodes of the store were used; 4 of them were not held out from the training."
    )
    assert every.windows == 3
    assert "no other episodes" in every.linear
    one = evaluate_offline(settings(checkpoint, store, episodes=[0], windows=3))
    assert list(one.chosen.names) == store.names()[:1]
    assert one.chosen.why == "1 named episodes were used; the training held 0 of them out."
    other = make_store(tmp_path / "other", 1, texts=("another",))
    unknown = evaluate_offline(settings(checkpoint, other, windows=3))
    assert "does not tell whether it was trained on them" in unknown.chosen.why


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"windows": 0}, "dataset.windows must be an integer of at least 1"),
        ({"checkpoint": "ws://127.0.0.1:8765"}, "dataset= needs the network itself"),
        ({"episodes": ["move.x"]}, r"no episode 'move.x'. Allowed: move\.0000000000"),
        ({"dataset": Path("nowhere")}, "no episode store at nowhere"),
    ],
    ids=str,
)
def test_wrong_settings_are_named(
    changes: dict[str, object],
    message: str,
    checkpoint: Path,
    policy: ChunkPolicy,
    store: EpisodeStore,
) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate_offline(replace(settings(checkpoint, store), **changes))  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_store_with_another_rate_than_the_policy_is_refused(
    store: EpisodeStore, tmp_path: Path
) -> None:
    slower = replace(CONTRACT, control_hz=10.0)
    save(tmp_path / "slow", store, slower)
    with pytest.raises(ValueError, match=r"does not fit .*slow"):
        evaluate_offline(settings(tmp_path / "slow", store))


def test_a_command_line_has_either_recordings_or_a_task() -> None:
    line = with_dataset(["dataset=runs/own", "checkpoint=a", "dataset.windows=3"])
    assert line == ["dataset.path=runs/own", "checkpoint=a", "dataset.windows=3"]
    check_overrides(line)
    check_no_recordings(["seeds=3", "task=fmb_1"])
    for other in ("task=fmb_1", "suite=quick", "seeds=3", "+task.options.x=1", "videos=false"):
        with pytest.raises(ValueError, match=r"either on recordings \(dataset=\) or in simulation"):
            check_overrides([*line, other])
    with pytest.raises(ValueError, match=r"dataset.windows needs .* dataset=STORE"):
        check_no_recordings(["dataset.windows=3"])
