"""Policies that predict the next keypose beside the chunk."""

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.policies.action_spaces.test_open_close import write_store
from tests.policies.conftest import model_configuration
from tests.policies.demonstrations import CONTRACT, episode, observation_at
from tests.policies.grasps import KEYPOSE, PLACED, POSES, batch_for, few, generator, policy_of
from torch import Tensor

from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.training.interfaces import Batch
from stringline.encoders.training.trainer import Trainer
from stringline.policies.algorithms.denoising_policy import DenoisingPolicy
from stringline.policies.checkpoints.load import build_policy
from stringline.policies.chunks.prefix import ActionPrefix
from stringline.policies.networks.denoiser import TransformerDenoiser
from stringline.policies.networks.normalised_prefix import NormalisedPrefix
from stringline.sim.training.training_data import TrainingData
from stringline.sim.training.window_batches import WindowBatches

KINDS = ("diffusion", "flow", "energy")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    return TrainingData(write_store(tmp_path_factory.mktemp("grasps") / "store"), held_out=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("choice", "rows"),
    [
        ((), 2),
        (("+action=relative_joints", "+gripper=open_close"), 2),
        (("+action_places=gripper",), 4),
        (PLACED, 4),
    ],
    ids=["plain", "commands", "gripper", "noisy_pose"],
)
def test_every_kind_trains_plans_and_predicts_it(
    data: TrainingData, kind: str, choice: tuple[str, ...], rows: int
) -> None:
    """The keypose has one token per arm, and all parameters have a gradient."""
    policy = policy_of(data, f"+policy={kind}", *choice, KEYPOSE)
    assert policy.rows == policy.chunk + rows
    batch = few(batch_for(policy, data))
    policy.train().observation_encoder.joint_dropout = 0.0  # type: ignore[assignment]
    policy.loss(batch).backward()  # type: ignore[no-untyped-call]
    without = [name for name, p in policy.named_parameters() if p.grad is None or not p.grad.any()]
    # The same for all candidates: the ranking does not depend on it. No token has the mark.
    assert set(without) <= {"energy.read_action.bias", "observation_encoder.blocks.unplaced_mark"}
    policy.eval()
    assert policy.predict(batch, generator()).shape == (3, 8, 14)
    keypose = policy.predict_keypose(batch, generator())
    assert keypose.shape == batch["keypose"].shape
    assert keypose.isfinite().all()
    if "+gripper=open_close" in choice:
        assert set(keypose[:, [6, 13]].unique().tolist()) <= {0.0, 1.0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("choice", [(), PLACED], ids=["plain", "placed"])
def test_without_it_nothing_changes(data: TrainingData, kind: str, choice: tuple[str, ...]) -> None:
    """Weight 0 is a policy of settings that do not name it: weights, random numbers and results."""
    model = model_configuration(f"+policy={kind}", *choice)
    assert model["keypose"] == 0
    unnamed = {key: value for key, value in model.items() if key != "keypose"}
    statistics = data.statistics(model)
    assert not [key for key in statistics if key.startswith("keypose")]
    results = []
    for settings in (model, unnamed):
        torch.manual_seed(0)
        policy = build_policy(settings, CONTRACT, statistics)
        assert not policy.predicts_keyposes
        batch = few(batch_for(policy, data))  # type: ignore[arg-type]
        assert "keypose" not in batch
        loss = policy.loss(batch)
        plan = policy.predict(batch, generator())
        results.append([*policy.state_dict().values(), loss, torch.get_rng_state(), plan])
    assert all(map(torch.equal, *results))
    assert policy.counted_actions(batch) == batch["action_mask"].sum()


@pytest.mark.parametrize("kind", ["diffusion", "flow"])
def test_the_weight_counts_actions(data: TrainingData, kind: str) -> None:
    """The loss is a mean, so loss times the count is the errors of actions plus w times those."""
    policy = policy_of(data, f"+policy={kind}", "+action=relative_joints", KEYPOSE)
    batch = few(batch_for(policy, data))
    totals = []
    for weight in (1.0, 8.0, 15.0):
        policy.keypose_weight = weight
        torch.manual_seed(1)
        count = policy.counted_actions(batch)
        assert count == batch["action_mask"].sum() + 3 * weight
        totals.append(float(policy.loss(batch).detach() * count))
    assert totals[2] - totals[1] == pytest.approx(totals[1] - totals[0], rel=1e-4)
    assert totals[1] > totals[0]


@pytest.mark.parametrize("kind", KINDS)
def test_actions_attend_to_the_keypose(data: TrainingData, kind: str) -> None:
    """A keypose that is kept at another place by a prefix of all rows moves the free actions."""
    policy = policy_of(data, f"+policy={kind}", *POSES, KEYPOSE)
    batch = few(batch_for(policy, data))
    weight = torch.zeros(policy.rows)
    weight[policy.chunk :] = 1.0
    with torch.inference_mode():
        tokens = policy.observation_encoder(batch)
        near, far = (
            policy.generate_rows(
                tokens,
                generator(),
                NormalisedPrefix(torch.full((3, policy.rows, policy.action_dim), place), weight),
            )
            for place in (-0.5, 0.5)
        )
    assert torch.equal(far[:, policy.chunk :], torch.full_like(far[:, policy.chunk :], 0.5))
    assert (near - far)[:, : policy.chunk].abs().max() > 1e-4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("choice", [(), PLACED], ids=["plain", "placed"])
def test_a_session_plans_and_keeps_to_a_prefix(
    data: TrainingData, kind: str, choice: tuple[str, ...]
) -> None:
    """The keypose is free, and fixed actions come out to the bit."""
    past = ("+history=state", "policy.observation_encoder.history.ages_s=[0.16,0.08]")
    policy = policy_of(data, f"+policy={kind}", *choice, *past, KEYPOSE)
    session = policy.session(7)
    plan = session.plan(observation_at(episode(0), 4))
    assert plan.action.shape == (8, 14)
    kept = ActionPrefix(plan.time[2:6], plan.action[2:6], np.array([1.0, 1.0, 0.5, 0.1]))
    found = session.plan(observation_at(episode(0), 6), kept)
    np.testing.assert_array_equal(found.action[:2], kept.action[:2])
    assert np.isfinite(found.action).all()
    with pytest.raises(ValueError, match=r"shape \(1, 10, .*allowed for this plan: \(3, 8, "):
        policy.generate(
            policy.observation_encoder(few(batch_for(policy, data))),
            generator(),
            NormalisedPrefix(torch.zeros(1, 10, policy.action_dim), torch.zeros(10)),
        )


def test_a_continued_training_equals_an_uninterrupted_one(
    data: TrainingData, tmp_path: Path
) -> None:
    class Ends(WindowBatches):
        """Ends with an error after the first step."""

        def stream(
            self, first_step: int, last_step: int, process: int = 0, processes: int = 1
        ) -> Generator[Batch, None, None]:
            yield next(super().stream(first_step, last_step, process, processes))
            raise OSError("The disk is gone.")

    weights = []
    for name, first in (("whole", None), ("parts", Ends)):
        policy = policy_of(data, KEYPOSE)
        windows = data.windows_for(policy, data.training)
        fit = partial(
            Trainer(steps=2, batch_size=3, save_every=1, warmup_steps=1).fit,
            directory=tmp_path / name,
            save_model=lambda model: None,
        )
        if first is not None:
            with pytest.raises(OSError, match="disk"):
                fit(policy, first(windows, 3, seed=0))
        fit(policy, WindowBatches(windows, 3, seed=0))
        weights.append(policy.state_dict())
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


@pytest.mark.slow
def test_a_policy_learns_keyposes(data: TrainingData) -> None:
    """Of a few windows with different keyposes, well below their own spread."""
    policy = policy_of(data, "+policy=flow", "+action=relative_joints", KEYPOSE).train()
    policy.observation_encoder.joint_dropout = 0.0  # type: ignore[assignment]
    batch = {key: value[::4] for key, value in batch_for(policy, data).items()}
    optimizer = torch.optim.Adam(policy.parameters(), lr=2e-3)
    before = error(policy, batch)
    torch.manual_seed(0)
    for _ in range(150):
        optimizer.zero_grad()
        policy.loss(batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    spread = (batch["keypose"] - batch["keypose"].mean(dim=0)).square().mean()
    assert error(policy, batch) < 0.3 * spread < before


def error(policy: DenoisingPolicy, batch: dict[str, Tensor]) -> Tensor:
    return (policy.eval().predict_keypose(batch, generator()) - batch["keypose"]).square().mean()


def test_another_denoiser_gets_all_rows(data: TrainingData) -> None:
    unet = "{_target_: stringline.UnetDenoiser, _partial_: true, down_dims: [16, 32, 64]}"
    policy = policy_of(data, f"+policy.denoiser={unet}", KEYPOSE)
    assert policy.rows == policy.chunk + 4
    batch = few(batch_for(policy, data))
    assert policy.loss(batch).isfinite()
    assert policy.predict_keypose(batch, generator()).shape == (3, 14)
    usual = policy_of(data, KEYPOSE).denoiser
    assert isinstance(usual, TransformerDenoiser)
    assert len(usual.position) == 5, "four tokens of actions and one of the keypose"


def test_what_does_not_fit_is_reported(data: TrainingData) -> None:
    with pytest.raises(ValueError, match=r"keypose is -1.*; allowed: 0 and above"):
        policy_of(data, "policy.keypose=-1")
    plain = policy_of(data)
    batch = few(batch_for(plain, data))
    with pytest.raises(ValueError, match=r"its setting keypose is 0; allowed: above 0"):
        plain.predict_keypose(batch, generator())
    with pytest.raises(ValueError, match=r"'keypose'. Its arguments: observation_encoder, chunk"):
        build_policy(
            {
                "_target_": "stringline.ActPolicy",
                "observation_encoder": model_configuration()["observation_encoder"],
                "keypose": 8,
            },
            CONTRACT,
            plain.statistics,
        )
    model = model_configuration("+action=relative_joints", KEYPOSE)
    lacking = data.statistics(model_configuration("+action=relative_joints"))
    with pytest.raises(ValueError, match=r"no statistics of 'keypose/relative_joints'"):
        build_policy(model, CONTRACT, lacking)
    contract = replace(CONTRACT, action=CONTRACT.action[:6])
    rows = {key: value for key, value in data.statistics(model_configuration()).items()}
    rows["action"] = replace(
        rows["action"],
        **{name: getattr(rows["action"], name)[..., :6] for name in ("min", "max", "mean", "std")},
    )
    with pytest.raises(ValueError, match=r"^Keyposes need an absolute opening"):
        build_policy(model_configuration(KEYPOSE), contract, Statistics(rows))
