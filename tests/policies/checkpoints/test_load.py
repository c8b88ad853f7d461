"""Checkpoints of policies: round trip, digests, names, and the shipped checkpoint."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.checkpoints.load import (
    SHIPPED,
    checkpoint_digest,
    load_policy,
    save_policy,
)

MakePolicy = Callable[..., ChunkPolicy]


Observe = Callable[[int], dict[str, Array]]


def test_a_checkpoint_gives_the_same_policy(
    tmp_path: Path,
    make_policy: MakePolicy,
    observe: Observe,
    configuration: Callable[..., dict[str, object]],
) -> None:
    policy = make_policy()
    save_policy(tmp_path / "c", policy, configuration(), {"steps": 3})
    again = load_policy(tmp_path / "c")
    assert again.contract == policy.contract
    assert np.array_equal(
        policy.session(1).plan(observe(0)).action, again.session(1).plan(observe(0)).action
    )


def test_checkpoints_build_networks_only(
    tmp_path: Path, make_policy: MakePolicy, configuration: Callable[..., dict[str, object]]
) -> None:
    save_policy(tmp_path / "c", make_policy(), configuration(), {})
    file = tmp_path / "c" / "checkpoint.yaml"
    text = file.read_text()
    refusals = {
        "stringline.sim.rollout.workers.Worker": "no public name",
        "stringline.Trainer": "not a class derived from Module",
    }
    for target, refusal in refusals.items():
        file.write_text(text.replace("stringline.MetricPlaces", target))
        with pytest.raises(ValueError, match=refusal):
            load_policy(tmp_path / "c")


def test_checkpoints_have_different_digests(
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


def test_an_unknown_checkpoint_is_reported_with_the_shipped_ones() -> None:
    with pytest.raises(
        ValueError,
        match=(
            r"no checkpoint folder or shipped checkpoint 'hand_over_bannana'. Did you mean "
            r"'hand_over_banana'"
        ),
    ):
        load_policy("hand_over_bannana")


def test_the_shipped_checkpoint_plans() -> None:
    """It is small enough to ship, fits ALOHA, and plans within its limits."""
    policy = load_policy("hand_over_banana")
    size = sum(file.stat().st_size for file in (SHIPPED / "hand_over_banana").iterdir())
    assert size <= 10_000_000
    assert policy.contract.incompatibilities(ALOHA.contract(policy.contract.cameras, 50.0)) == []
    assert (policy.action_range.low.numpy() >= ALOHA.lower - 0.05).all()
    assert (policy.action_range.high.numpy() <= ALOHA.upper + 0.05).all()
