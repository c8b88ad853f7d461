"""Training steps of policies: what settings of a trainer change in them, and what they do not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.encoders.training.waits import Waits
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import without_value_checks
from stringline.encoders.training.adaptation import Adaptation
from stringline.encoders.training.settings import TrainerSettings
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.checkpoints.load import load_policy, save_policy

MakePolicy = Callable[..., ChunkPolicy]
MakeBatch = Callable[[int], dict[str, Tensor]]
PLACED = ("+action_places=gripper",)


def gradients(
    policy: ChunkPolicy, batch: dict[str, Tensor], **chosen: Any
) -> tuple[Tensor, list[Tensor]]:
    """Returns the loss of a training step and its gradients, under settings of a trainer."""
    with Adaptation(TrainerSettings(steps=1, batch_size=1, **chosen), policy) as adaptation:
        adaptation.train()
        policy.zero_grad()
        torch.manual_seed(0)
        loss = policy.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        found = [each.grad for each in policy.parameters() if each.grad is not None]
        return loss.detach(), [gradient.clone() for gradient in found]


@pytest.mark.parametrize("kind", ["diffusion", "flow", "energy"])
def test_no_step_waits_for_the_device(
    make_policy: MakePolicy, make_batch: MakeBatch, kind: str
) -> None:
    """Except for checks of values, which a trainer skips that reads its losses seldom."""
    policy = make_policy(f"+policy={kind}")
    batch = make_batch(2)
    with Waits() as checked:
        gradients(policy, batch)
    with Waits() as watched, without_value_checks():
        gradients(policy, batch)
    assert checked.found
    assert watched.found == []


@pytest.mark.parametrize("overrides", [(), PLACED], ids=["plain", "placed"])
def test_layers_that_compute_again_give_the_same_gradients(
    make_policy: MakePolicy, make_batch: MakeBatch, overrides: tuple[str, ...]
) -> None:
    policy = make_policy(*overrides, "policy.observation_encoder.joint_dropout=0.3")
    batch = make_batch(3)
    loss, expected = gradients(policy, batch)
    again, found = gradients(policy, batch, gradient_checkpointing=True)
    torch.testing.assert_close(again, loss, rtol=0, atol=1e-6)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("overrides", [(), PLACED], ids=["plain", "placed"])
def test_rounded_attention_is_close_and_not_equal(
    make_policy: MakePolicy, make_batch: MakeBatch, overrides: tuple[str, ...]
) -> None:
    """It ends with the run."""
    policy = make_policy(*overrides)
    batch = make_batch(2)
    loss, _ = gradients(policy, batch)
    rounded, _ = gradients(policy, batch, attention="bf16")
    assert not torch.equal(loss, rounded)
    torch.testing.assert_close(rounded, loss, rtol=1e-2, atol=0)
    torch.testing.assert_close(gradients(policy, batch)[0], loss, rtol=0, atol=0)


def test_adapters_act_on_attention_over_positions_and_are_merged_into_a_checkpoint(
    make_policy: MakePolicy,
    make_batch: MakeBatch,
    configuration: Callable[..., dict[str, object]],
    tmp_path: Path,
) -> None:
    """The checkpoint loads, and folds, as any other; attention reads weights, not layers."""
    policy = make_policy()
    batch = make_batch(2)
    part = "observation_encoder.blocks.blocks.0.attention.qkv"
    loss, _ = gradients(policy, batch)
    with Adaptation(TrainerSettings(steps=1, batch_size=1, lora={part: 2}), policy) as adaptation:
        up = policy.get_parameter(f"{part}.parametrizations.weight.0.up")
        nn.init.normal_(up)
        assert not policy.get_parameter(f"{part}.parametrizations.weight.original").requires_grad
        with adaptation.merged():
            save_policy(tmp_path / "adapted", policy, configuration(), {})
        adapted = predicted(policy.eval(), batch)
    assert not torch.equal(gradients(policy, batch)[0], loss)
    loaded = load_policy(tmp_path / "adapted")
    assert isinstance(loaded, ChunkPolicy)
    torch.testing.assert_close(predicted(loaded, batch), adapted)
    torch.testing.assert_close(predicted(policy.eval(), batch), adapted)
    encoder: Any = loaded.observation_encoder
    encoder.blocks.fold_()
    torch.testing.assert_close(predicted(loaded, batch), adapted, rtol=1e-4, atol=1e-4)


def predicted(policy: ChunkPolicy, batch: dict[str, Tensor]) -> Tensor:
    return policy.predict(batch, torch.Generator().manual_seed(1)).clone()
