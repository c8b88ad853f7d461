"""History: sessions and windows agree, absent observations have no effect, and time counts."""

import logging
from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.policies.demonstrations import observation_at
from torch import Tensor

from stringline import ChunkPolicy, EpisodeStore, ObservationEncoder, ObservationHistory, Windows
from stringline.policies.observation.interfaces import PastObservations

OfDemonstrations = Callable[..., ChunkPolicy]
LOOKING_BACK = (
    "+history=state",
    "policy.observation_encoder.history.ages_s=[0.16,0.08]",
    "policy.observation_encoder.history.dropout=0",
)
PLACED = "coordinates.places.missing_depth=centroid"  # No token is excluded.


@pytest.fixture
def windows(demonstrations: EpisodeStore) -> Windows:
    return Windows(
        demonstrations, chunk=8, cameras=("overhead", "wrist_left", "wrist_right"), past=(8, 4)
    )


def batch_at(windows: Windows, *indices: int) -> dict[str, Tensor]:
    return {key: torch.from_numpy(value) for key, value in windows.batch(indices).items()}


def network_of(policy: ChunkPolicy) -> ObservationEncoder:
    assert isinstance(policy.observation_encoder, ObservationEncoder)
    return policy.observation_encoder


def same(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("ages", "message"),
    [
        ((), r"ages_s is \[\]; allowed: at least one, different times above 0"),
        ((0.0,), r"ages_s is \[0.0\]"),
        ((0.1, 0.1), r"ages_s is \[0.1, 0.1\]"),
    ],
)
def test_invalid_ages_are_rejected(ages: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ObservationHistory(ages)


def test_ages_are_converted_to_steps() -> None:
    assert ObservationHistory((0.1, 0.96)).steps(50.0) == (48, 5)
    with pytest.raises(
        ValueError, match=r"are \[5, 0\] steps at 5 Hz; allowed: different steps from 1"
    ):
        ObservationHistory((0.05, 1.0)).steps(5.0)
    with pytest.raises(
        ValueError, match=r"history.dropout must be a number of at least 0 and below 1 \(got 1.0\)"
    ):
        ObservationHistory((0.1,), dropout=1.0)
    with pytest.raises(
        ValueError, match=r"history.tolerance_s must be a number of at least 0 \(got -1\)"
    ):
        ObservationHistory((0.1,), tolerance_s=-1)


def seen(*times: float, history: ObservationHistory) -> dict[str, np.ndarray]:
    past, found = PastObservations(history, ("time", "value")), {}
    for time in times:
        value = np.array([time * 10], np.float32)
        found = past.before({"time": np.asarray(time), "value": value})
        value[:] = np.nan  # The caller may reuse its memory.
    return found


def test_missing_observations_are_absent() -> None:
    history = ObservationHistory((0.2, 0.1), tolerance_s=0.03)
    first = seen(1.0, history=history)
    assert first["past_mask"].tolist() == [False, False]
    assert first["past/value"].tolist() == [[10.0], [10.0]]
    second = seen(1.0, 1.12, history=history)
    assert second["past_mask"].tolist() == [False, True]
    np.testing.assert_allclose(second["past/time"], [1.12, 1.0])
    np.testing.assert_allclose(second["past/value"][1], [10.0])
    third = seen(1.0, 1.12, 1.215, 1.3, history=history)
    np.testing.assert_allclose(third["past/time"], [1.12, 1.215])
    assert third["past_mask"].all()


def test_missing_times_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert seen(1.0, 1.1, history=ObservationHistory((0.2,)))["past_mask"].tolist() == [False]
        assert not caplog.records, "the beginning of an episode is not reported"
        for times in ((1.0, 1.3), (1.0, 1.3, 1.6, 1.9)):
            caplog.clear()
            assert not seen(*times, history=ObservationHistory((0.2,)))["past_mask"].any()
            assert len(caplog.records) == 1
            assert "reads observations of [0.2] s ago, but lacks that of 1.100 s" in caplog.text


def test_times_that_do_not_rise_are_rejected() -> None:
    with pytest.raises(
        ValueError,
        match=r"An observation of 1.0 s follows one of 2.0 s.*new session for each episode",
    ):
        seen(2.0, 1.0, history=ObservationHistory((0.2,)))


@pytest.mark.parametrize("images", [False, True])
def test_sessions_and_windows_have_the_same_history(
    demonstrations: EpisodeStore, of_demonstrations: OfDemonstrations, images: bool
) -> None:
    """The same keys with the same values, from the absent start of an episode on."""
    policy = of_demonstrations(
        *LOOKING_BACK, f"policy.observation_encoder.history.images={str(images).lower()}"
    )
    assert policy.history is not None
    steps = policy.history.steps(50.0)
    assert steps == (8, 4)
    cameras = [camera.name for camera in policy.contract.cameras]
    windows = Windows(demonstrations, chunk=8, cameras=cameras, past=steps, past_images=images)
    arrays = demonstrations.episode(demonstrations.names()[0]).arrays
    past = PastObservations(policy.history, policy.observation_encoder.past_keys)
    for index in range(4):
        found = policy.observed(observation_at(dict(arrays), 4 * index), past)
        expected = batch_at(windows, index)
        assert windows.step[index] == 4 * index
        assert set(found) <= set(expected)
        assert {key for key in expected if key.startswith("past/rgb")} == (
            {f"past/rgb/{name}" for name in cameras} if images else set()
        )
        known = expected["past_mask"][0]
        assert known.tolist() == [index >= 2, index >= 1]
        for key, value in found.items():
            there = (known,) if key.startswith("past/") else ()
            assert torch.equal(value[0][there], expected[key][0][there]), key
            assert value.dtype == expected[key].dtype


def test_sessions_store_observations_of_their_episode_only(
    demonstrations: EpisodeStore, of_demonstrations: OfDemonstrations
) -> None:
    """The second plan of an episode differs from the plan of one that begins there."""
    policy = of_demonstrations(*LOOKING_BACK)
    arrays = dict(demonstrations.episode(demonstrations.names()[0]).arrays)
    session, other = policy.session(0), policy.session(0)
    session.plan(observation_at(arrays, 0))
    later = session.plan(observation_at(arrays, 4)).action
    other.plan(observation_at(arrays, 1))
    assert not np.allclose(later, other.plan(observation_at(arrays, 4)).action, atol=1e-4)


@pytest.mark.parametrize(
    ("images", "depth"), [(False, "colours"), (True, "colours"), (True, "normals")]
)
def test_an_absent_past_has_no_effect(
    windows: Windows, of_demonstrations: OfDemonstrations, images: bool, depth: str
) -> None:
    """An encoder with an absent history equals the encoder without a history."""
    looking = of_demonstrations(
        *LOOKING_BACK,
        f"+depth={depth}",
        f"policy.observation_encoder.history.images={str(images).lower()}",
        PLACED,
    )
    plain = of_demonstrations(f"+depth={depth}", PLACED)
    weights = network_of(looking).state_dict()
    del weights["past_mark"]
    for name in [name for name in weights if ".space." in name]:
        weights[name.replace(".space.", ".")] = weights.pop(name)
    for name in [name for name in weights if name not in network_of(plain).state_dict()]:
        own = {"embed_joints.weight", "embed_joints.bias"}  # Those of the past.
        assert name in own | {"blocks.encodings.0.scaled", "blocks.encodings.0.scale"}
        del weights[name]
    network_of(plain).load_state_dict(weights)
    batch = batch_at(windows, 2, 4)
    absent = batch | {"past_mask": torch.zeros(2, 2, dtype=torch.bool)}
    expected, found = plain.observation_encoder(batch), looking.observation_encoder(absent)
    assert found.present is not None
    assert found.present.sum(dim=1).tolist() == [expected.tokens.shape[1]] * 2
    there = found.tokens[found.present].unflatten(0, (2, -1))
    torch.testing.assert_close(there, expected.tokens, rtol=0, atol=1e-5)
    full = looking.observation_encoder(batch)
    assert full.present is not None
    assert full.present.all()
    per_moment = 3 * 4 * images + 2
    assert full.tokens.shape[1] == expected.tokens.shape[1] + 2 * per_moment
    assert not same(full.tokens[found.present].unflatten(0, (2, -1)), expected.tokens), (
        "a past that is there matters"
    )


def test_the_past_depends_on_its_positions_and_times(
    windows: Windows, of_demonstrations: OfDemonstrations
) -> None:
    policy, batch = of_demonstrations(*LOOKING_BACK), batch_at(windows, 2, 4)
    here = policy.observation_encoder(batch).tokens
    for key, change in {"T_base_gripper/left": 0.05, "joints/position": 0.3, "time": -0.2}.items():
        moved = batch[f"past/{key}"].clone()
        moved[:, 1] += change
        assert not same(policy.observation_encoder(batch | {f"past/{key}": moved}).tokens, here), (
            key
        )
    later = {key: batch[key] + 3.0 for key in ("time", "past/time")}
    assert same(policy.observation_encoder(batch | later).tokens, here), (
        "only differences of times have an effect"
    )
    half = batch | {"past_mask": torch.tensor([[False, True], [True, True]])}
    changed = half | {"past/joints/position": half["past/joints/position"].clone()}
    changed["past/joints/position"][0, 0] = 2.0
    one, other = policy.observation_encoder(half), policy.observation_encoder(changed)
    assert one.present is not None
    assert torch.equal(one.tokens[one.present], other.tokens[one.present]), (
        "an absent moment has no effect"
    )


def test_past_images_of_an_absent_camera_are_absent(
    windows: Windows, of_demonstrations: OfDemonstrations
) -> None:
    policy, batch = (
        of_demonstrations(*LOOKING_BACK, "policy.observation_encoder.history.images=true", PLACED),
        batch_at(windows, 2, 4),
    )
    lacking = batch | {"present/wrist_left": torch.tensor([True, False])}
    changed = lacking | {"past/rgb/wrist_left": lacking["past/rgb/wrist_left"].clone()}
    changed["past/rgb/wrist_left"][1] = 255 - changed["past/rgb/wrist_left"][1]
    one, other = policy.observation_encoder(lacking), policy.observation_encoder(changed)
    assert one.present is not None
    assert (~one.present).sum(dim=1).tolist() == [0, 3 * 4]
    assert torch.equal(one.tokens[one.present], other.tokens[one.present])


def test_training_hides_the_past_of_some_examples(
    windows: Windows, of_demonstrations: OfDemonstrations
) -> None:
    policy = of_demonstrations(
        *LOOKING_BACK,
        "policy.observation_encoder.history.dropout=0.5",
        "policy.observation_encoder.joint_dropout=0",
        PLACED,
    ).train()
    batch = batch_at(windows, *[4] * 16)
    torch.manual_seed(0)
    present = policy.observation_encoder(batch).present
    assert present is not None
    hidden = (~present).sum(dim=1)
    assert sorted(set(hidden.tolist())) == [0, 4], "the whole past of an example or no past"
    policy.loss(batch).backward()
    assert all(parameter.grad is not None for parameter in policy.parameters())


@pytest.mark.slow
def test_the_keys_of_the_past_are_declared(
    windows: Windows, of_demonstrations: OfDemonstrations
) -> None:
    policy, batch = of_demonstrations(*LOOKING_BACK), batch_at(windows, 2)
    del batch["past_mask"]
    with pytest.raises(ValueError, match=r"no observation key 'past_mask'"):
        policy.observation_encoder(batch)
    with pytest.raises(ValueError, match=r"Time cannot be added to LieRE"):
        of_demonstrations(*LOOKING_BACK, "+encoder=liere", "encoder.encoding.block=4")
    assert (
        of_demonstrations(*LOOKING_BACK, "+encoder=none")
        .observation_encoder(batch_at(windows, 2))
        .tokens.isfinite()
        .all()
    )
