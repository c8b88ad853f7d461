"""The diffusion policy: loss, sampling, sessions and checkpoints."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from stringline.datasets.contract import Array
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.policies.chunk_policy import ChunkPolicy
from stringline.policies.diffusion import DiffusionPolicy
from stringline.policies.load import SHIPPED, checkpoint_digest, load_policy, save_policy
from stringline.policies.localisation import LocalisationProbe

MakePolicy = Callable[..., ChunkPolicy]
MakeBatch = Callable[[int], dict[str, Tensor]]
Observe = Callable[[int], dict[str, Array]]


def test_sampling_starts_where_no_data_is_left(make_policy: MakePolicy) -> None:
    policy = make_policy()
    assert isinstance(policy, DiffusionPolicy)
    policy.scheduler.set_timesteps(policy.sampling_steps)
    first = policy.scheduler.timesteps[0]
    assert first == 99
    assert policy.scheduler.alphas_cumprod[first].sqrt() < 1e-3


def test_actions_beyond_the_end_do_not_count(make_policy: MakePolicy, make_batch: MakeBatch) -> None:
    policy, batch = make_policy(), make_batch(3)
    batch["action_mask"][:, 5:] = False
    changed = dict(batch)
    changed["action"] = torch.where(batch["action_mask"][..., None], batch["action"], torch.tensor(0.3))
    batch["action"] = torch.where(batch["action_mask"][..., None], batch["action"], torch.tensor(0.3))
    torch.manual_seed(1)
    one = policy.loss(batch)
    torch.manual_seed(1)
    assert torch.equal(one, policy.loss(changed))
    fewer = dict(batch, action_mask=torch.zeros_like(batch["action_mask"]))
    assert policy.loss(fewer) == 0


def test_draws_share_the_memory(make_policy: MakePolicy, make_batch: MakeBatch) -> None:
    """K draws together are the K draws one by one."""
    policy = make_policy()
    assert isinstance(policy, DiffusionPolicy)
    memory = policy.memory(make_batch(2))
    remembered = policy.denoiser.remember(memory.tokens)
    noisy, level = torch.randn(2, 3, 8, 14), torch.rand(2, 3)
    together = policy.denoiser(noisy, level, remembered)
    for draw in range(3):
        alone = policy.denoiser(noisy[:, draw : draw + 1], level[:, draw : draw + 1], remembered)
        torch.testing.assert_close(together[:, draw : draw + 1], alone, atol=1e-5, rtol=1e-4)


def test_a_session_depends_on_its_seed_and_observations_alone(make_policy: MakePolicy, observe: Observe) -> None:
    policy = make_policy()
    one, other, third = policy.session(4), policy.session(4), policy.session(5)
    first = one.plan(observe(0))
    policy.session(9).plan(observe(3))
    torch.manual_seed(77)
    assert np.array_equal(first.action, other.plan(observe(0)).action)
    assert np.array_equal(one.plan(observe(1)).action, other.plan(observe(1)).action)
    assert not np.array_equal(first.action, third.plan(observe(0)).action)


def test_chunks_start_at_the_time_of_the_observation(make_policy: MakePolicy, observe: Observe) -> None:
    chunk = make_policy().session(0).plan(observe(2))
    assert chunk.time[0] == 3.0
    assert np.allclose(np.diff(chunk.time), 0.02)
    assert chunk.action.shape == (8, 14)
    assert chunk.action.dtype == np.float32


def test_predictions_stay_within_the_range_of_the_data(make_policy: MakePolicy, observe: Observe) -> None:
    policy = make_policy()
    action = torch.from_numpy(policy.session(0).plan(observe(0)).action)
    assert (action >= policy.action_range.low - 1e-4).all()
    assert (action <= policy.action_range.high + 1e-4).all()


def test_an_observation_that_does_not_fit_is_refused(make_policy: MakePolicy, observe: Observe) -> None:
    session = make_policy().session(0)
    lacking = observe(0)
    del lacking["depth/overhead"]
    with pytest.raises(ValueError, match=r"no observation key 'depth/overhead'"):
        session.plan(lacking)
    wrong = observe(0) | {"joints/position": np.zeros(7, np.float32)}
    with pytest.raises(ValueError, match=r"joints/position has shape \(7,\); allowed: \(14,\)"):
        session.plan(wrong)


def test_a_checkpoint_gives_the_same_policy(
    tmp_path: Path, make_policy: MakePolicy, observe: Observe, configuration: Callable[..., dict[str, object]]
) -> None:
    policy = make_policy()
    save_policy(tmp_path / "c", policy, configuration(), {"steps": 3})
    again = load_policy(tmp_path / "c")
    assert again.contract == policy.contract
    assert np.array_equal(policy.session(1).plan(observe(0)).action, again.session(1).plan(observe(0)).action)


def test_the_probe_is_one_for_a_seer_and_about_nothing_for_a_guesser(make_policy: MakePolicy, make_batch: MakeBatch) -> None:
    policy, batch = make_policy(), make_batch(6)
    probe = LocalisationProbe(batch)
    seen = policy.predict(batch, torch.Generator().manual_seed(0))
    assert LocalisationProbe(batch | {"action": seen})(policy)["localisation"] == pytest.approx(1.0)
    assert probe(policy)["localisation"] < 0.5
    with pytest.raises(ValueError, match=r"at least 3 held-out episodes; got 2"):
        LocalisationProbe(make_batch(2))


def test_the_policy_learns_where_the_target_is(make_policy: MakePolicy, make_batch: MakeBatch) -> None:
    """A chunk that follows from the gripper's offset to a thing in the picture is learned to a small error."""
    policy, batch = make_policy().train(), make_batch(4)
    optimizer = torch.optim.AdamW(policy.parameters(), 3e-3)
    losses = []
    for step in range(60):
        torch.manual_seed(step)
        loss = policy.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.3 * np.mean(losses[:5])


def test_checkpoints_build_networks_only(
    tmp_path: Path, make_policy: MakePolicy, configuration: Callable[..., dict[str, object]]
) -> None:
    save_policy(tmp_path / "c", make_policy(), configuration(), {})
    file = tmp_path / "c" / "checkpoint.yaml"
    text = file.read_text()
    for target in ("stringline.sim.workers.Worker", "stringline.encoders.training.loop.Trainer"):
        file.write_text(text.replace("stringline.encoders.positions.coordinates.MetricPlaces", target))
        with pytest.raises(ValueError, match=r"only build classes of stringline"):
            load_policy(tmp_path / "c")


def test_every_checkpoint_has_its_own_digest(
    tmp_path: Path, make_policy: MakePolicy, configuration: Callable[..., dict[str, object]]
) -> None:
    policy = make_policy()
    save_policy(tmp_path / "c", policy, configuration(), {})
    before = checkpoint_digest(tmp_path / "c")
    save_policy(tmp_path / "c", policy, configuration(), {})
    assert checkpoint_digest(tmp_path / "c") == before
    with torch.no_grad():
        next(policy.parameters()).add_(1e-6)
    save_policy(tmp_path / "c", policy, configuration(), {})
    assert checkpoint_digest(tmp_path / "c") != before


def test_a_checkpoint_that_does_not_exist_is_answered_with_those_that_ship() -> None:
    with pytest.raises(
        ValueError, match=r"no checkpoint folder or shipped checkpoint 'hand_over_bannana'. Did you mean 'hand_over_banana'"
    ):
        load_policy("hand_over_bannana")


def test_the_shipped_checkpoint_sees_and_acts() -> None:
    """It is small enough to ship, fits ALOHA, and plans within its limits."""
    policy = load_policy("hand_over_banana")
    size = sum(file.stat().st_size for file in (SHIPPED / "hand_over_banana").iterdir())
    assert size <= 10_000_000
    assert policy.contract.misfits(ALOHA.contract(policy.contract.cameras, 50.0)) == []
    assert (policy.action_range.low.numpy() >= ALOHA.lower - 0.05).all()
    assert (policy.action_range.high.numpy() <= ALOHA.upper + 0.05).all()
