"""The motion probe: errors of single actions in mrad and mm, and its two baselines."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from stringline import ChunkPolicy, EpisodeStore, Windows
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.action_spaces.space import ContractActions, HeldActions, can_hold
from stringline.policies.algorithms.chunk_policy import fit_remainder
from stringline.policies.checkpoints.load import (
    build_policy,
)
from stringline.policies.probes.probes import MotionProbe, Probes, linear_motion

MakePolicy = Callable[..., ChunkPolicy]
JOINTS = [place for place in range(14) if place not in (6, 13)]


def planning(policy: ChunkPolicy, chunks: Tensor, monkeypatch: pytest.MonkeyPatch) -> ChunkPolicy:
    """Lets a policy plan these chunks (B, T, A), the first windows first."""
    rest = list(chunks)

    def predict(batch: dict[str, Tensor], generator: object) -> Tensor:
        return torch.stack([rest.pop(0) for _ in range(len(batch["action"]))])

    monkeypatch.setattr(policy, "predict", predict)
    return policy


def test_errors_are_those_of_each_action_inside_the_episode(
    make_policy: MakePolicy,
    make_batch: Callable[[int], dict[str, Tensor]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, batch = make_policy(), make_batch(20)
    batch["action_mask"][5:, -1] = False
    off = torch.zeros(20, 8, 14)
    off[..., JOINTS] = 0.01 * torch.arange(1, 9)[:, None]
    off[5:, -1] = 9.0
    probe = MotionProbe(batch, None, policy.contract)
    found = probe(planning(policy, batch["action"] + off, monkeypatch))
    assert {name for name in found if name.startswith("joints_mrad/")} == {
        f"joints_mrad/{entry}" for entry in (1, 4, 8, "last")
    }
    for entry, expected in {"1": 10.0, "4": 40.0, "8": 80.0, "last": 80.0}.items():
        assert found[f"joints_mrad/{entry}"] == pytest.approx(expected, rel=1e-3)
    assert found["grippers_mm/1"] > 0
    exact = MotionProbe(batch, None, policy.contract)(
        planning(policy, batch["action"], monkeypatch)
    )
    assert max(value for name, value in exact.items() if "hold" not in name) == 0
    held = batch["joints/position"][:, None] - batch["action"]
    first = 1e3 * held[:, 0, JOINTS].abs().mean()
    assert exact["joints_mrad_hold/1"] == pytest.approx(float(first), rel=1e-4)


def test_the_linear_map_is_beside_the_policy(
    demonstrations: EpisodeStore,
    measured: Statistics,
    configuration: Callable[..., dict[str, object]],
) -> None:
    """Fitted to the windows that it is measured on, it is better than holding."""
    episodes = demonstrations.episodes()
    contract = episodes[0].attributes.contract
    policy = build_policy(configuration(), contract, measured).eval()
    assert isinstance(policy, ChunkPolicy)
    linear = linear_motion(policy)
    assert linear is not None
    fit_remainder(linear, policy, ContractActions(contract=policy.contract), episodes)
    cameras = [camera.name for camera in policy.contract.cameras]
    windows = Windows(demonstrations, chunk=policy.chunk, cameras=cameras)
    batch = {key: torch.from_numpy(each) for key, each in windows.batch(range(8)).items()}
    found = Probes([MotionProbe(batch, linear, policy.contract), lambda _: {"x": 1.0}])(policy)
    assert found["joints_mrad_linear/1"] < found["joints_mrad_hold/1"]
    assert found["x"] == 1.0
    assert found["joints_mrad/1"] >= 0
    assert policy.posture is None, "the policy needs no posture of its own"


def test_grippers_need_no_measurement_and_arms_do(make_policy: MakePolicy) -> None:
    contract = make_policy().contract
    assert can_hold(contract)
    fewer = replace(contract, joints=tuple(contract.joints[place] for place in JOINTS))
    assert can_hold(fewer)
    held = HeldActions(fewer)({"joints/position": torch.ones(2, 12)})
    assert held[:, JOINTS].eq(1).all()
    assert not held[:, [6, 13]].any()
    assert not can_hold(replace(contract, joints=contract.joints[1:]))
    with pytest.raises(ValueError, match="cannot hold the measured joints; allowed: absolute"):
        HeldActions(replace(contract, joints=contract.joints[1:]))
    with pytest.raises(TypeError, match="needs a chunk policy; got Linear"):
        MotionProbe(
            {"action": torch.zeros(1, 2, 14), "action_mask": torch.ones(1, 2)},
            None,
            replace(contract, joints=contract.joints[1:]),
        )(nn.Linear(1, 1))
