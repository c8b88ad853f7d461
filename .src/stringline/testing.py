"""Checks of what a policy, a position encoding, a reader of data sets and a driver promise.

Each function takes an object, or what makes it, and raises an AssertionError that says what does
not hold. They need neither pytest nor a robot, and Stringline's own classes pass them in its tests:

    from stringline.testing import check_policy

    def test_my_policy() -> None:
        check_policy(MyPolicy(contract), [observation_of(seed) for seed in range(3)])
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stringline.datasets.contract.contract import Array, Observation, check_episode
from stringline.datasets.formats.foreign import Reader
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.policies.algorithms.learned_policy import LearnedPolicy
from stringline.policies.chunks.chunk import ActionChunk, Policy
from stringline.real_robot.driver_interface.driver import ArmDriver

__all__ = ["check_driver", "check_encoding", "check_policy", "check_reader", "check_training"]


def check_policy(
    policy: Policy, observations: Sequence[Mapping[str, Array]], *, draws: bool = True
) -> None:
    """Checks the plans of a policy.

    A session depends on its seed and its observations only: neither on other sessions nor on the
    global random numbers. Chunks start at the time of their observation, go on at the rate of the
    contract, and hold finite actions of its dimensions. A policy derived from `LearnedPolicy` also
    plans observations of several sessions at once as one by one, and refuses an observation without
    a key that it reads.

    Args:
        policy: The policy, in evaluation mode.
        observations: At least two different ones of its contract, in the order of their times.
        draws: Whether sessions with different seeds plan differently.

    Raises:
        AssertionError: Something does not hold.
    """
    first, second = observations[:2]
    one, other, third = policy.session(4), policy.session(4), policy.session(5)
    before = one.plan(first)
    _check_chunk(policy, first, before)
    policy.session(9).plan(second)
    torch.manual_seed(77)
    again = other.plan(first)
    assert np.array_equal(before.action, again.action), "Sessions of one seed plan differently."
    assert np.array_equal(one.plan(second).action, other.plan(second).action), (
        "The second plan depends on other sessions or on global random numbers."
    )
    assert draws != np.array_equal(before.action, third.plan(first).action), (
        "Another seed gives the same plan." if draws else "The plan depends on the seed."
    )
    if isinstance(policy, LearnedPolicy):
        _check_batches(policy, observations)
        _check_missing_key(policy, first)


def _check_chunk(policy: Policy, observation: Observation, chunk: ActionChunk) -> None:
    width, period = len(policy.contract.action), 1 / policy.contract.control_hz
    assert chunk.action.shape == (len(chunk.time), width), f"The actions are {chunk.action.shape}."
    assert chunk.action.dtype == np.float32, f"The actions are {chunk.action.dtype}."
    assert np.isfinite(chunk.action).all(), "An action is not finite."
    assert chunk.time[0] == float(observation["time"]), "A chunk starts at another time."
    assert np.allclose(np.diff(chunk.time), period), "Actions have another rate than the contract."


def _check_batches(policy: LearnedPolicy, observations: Sequence[Observation]) -> None:
    seeds = range(len(observations))
    alone, sessions = ([policy.session(seed) for seed in seeds] for _ in range(2))
    for _ in range(2):  # The second plan shows that the random numbers of a session are its own.
        expected = [each.plan(seen) for each, seen in zip(alone, observations, strict=True)]
        plans = policy.plan_batch(sessions, observations, [None] * len(observations))
        for plan, wanted in zip(plans, expected, strict=True):
            assert np.allclose(plan.action, wanted.action, atol=1e-4), "A batch plans differently."
            assert np.array_equal(plan.time, wanted.time), "A batch has other times."
    left = [name for name, each in policy.named_parameters() if each.grad is not None]
    assert not left, f"Planning leaves gradients of {', '.join(left)}."


def _check_missing_key(policy: LearnedPolicy, observation: Observation) -> None:
    key = policy.observation_encoder.keys[0]
    message = ""
    try:
        policy.session(0).plan({name: observation[name] for name in observation if name != key})
    except ValueError as error:
        message = str(error)
    assert message, f"An observation without {key} is planned for."
    assert key in message, f"The error of a missing {key} is: {message}"


def check_training(policy: LearnedPolicy, batch: Mapping[str, Tensor]) -> None:
    """Checks that the loss of a policy is a finite number with gradients of all parameters.

    Args:
        policy: The policy, whose gradients are overwritten.
        batch: At least two windows, as `Windows.batch` with the policy's `window_settings`.

    Raises:
        AssertionError: Something does not hold.
    """
    policy.zero_grad()
    loss = policy.loss(batch)
    assert loss.shape == (), f"The loss has the shape {tuple(loss.shape)}."
    assert loss.isfinite(), f"The loss is {loss.item()}."
    loss.backward()  # type: ignore[no-untyped-call]
    without = [
        name
        for name, each in policy.named_parameters()
        if each.requires_grad and (each.grad is None or not each.grad.isfinite().all())
    ]
    policy.zero_grad(set_to_none=True)
    assert not without, f"Without a finite gradient: {', '.join(without)}."


def check_encoding(make: Callable[[], PositionEncoding]) -> None:
    """Checks a position encoding.

    The rotation at the origin is the identity, rotations are orthogonal, and `rotate_inverse`
    undoes `rotate`. An encoding that calls itself `relative` gives logits that a common shift of
    all places does not change. State dicts restore it.

    Args:
        make: Makes the encoding, each time a new one.

    Raises:
        AssertionError: Something does not hold.
    """
    encoding = make().double()
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    x, r = draw(2, encoding.heads, 5, encoding.head_dim), draw(2, 5, encoding.axes)
    identity = torch.eye(encoding.head_dim, dtype=torch.float64)
    origin = encoding.rotation(torch.zeros_like(r))
    assert torch.allclose(origin, identity, atol=1e-12), "The origin is rotated."
    rotation = encoding.rotation(r)
    assert torch.allclose(rotation @ rotation.mT, identity, atol=1e-12), "Not orthogonal."
    places = encoding.prepare(r)
    back = encoding.rotate_inverse(encoding.rotate(x, places), places)
    assert torch.allclose(back, x, atol=1e-12), "rotate_inverse does not undo rotate."
    if encoding.relative:
        moved = encoding.prepare(r + draw(1, 1, encoding.axes))
        before, after = (encoding.rotate(x, each) for each in (places, moved))
        logits, shifted = before @ before.mT, after @ after.mT
        assert torch.allclose(logits, shifted, atol=1e-9), "A common shift changes logits."
    restored = make().double()
    restored.load_state_dict(encoding.state_dict())
    assert torch.equal(restored.rotation(r), rotation), "A state dict does not restore it."


def check_reader(reader: Reader, path: Path) -> None:
    """Checks a reader of a foreign format on a small data set.

    It lists the same episodes twice, each once, and each is an episode of its contract.

    Raises:
        AssertionError: Something does not hold.
        ValueError: An episode does not fit its contract.
    """
    listed = [str(each) for each in reader.episodes(path)]
    assert listed, f"{path} has no episodes."
    assert len(set(listed)) == len(listed), "An episode is listed twice."
    references = list(reader.episodes(path))
    assert [str(each) for each in references] == listed, "A second list differs."
    for reference in references:
        episode = reference.read()
        images = {key: np.stack(list(frames())) for key, frames in episode.images.items()}
        check_episode({**episode.arrays, **images}, episode.contract)


def check_driver(driver: ArmDriver) -> None:
    """Checks a driver that has not been connected: its names, and that it sends safe commands only.

    Raises:
        AssertionError: Something does not hold.
    """
    assert len(set(driver.arms)) == len(driver.arms) > 0, f"The arms are {driver.arms}."
    assert len(set(driver.servos)) == len(driver.servos), f"The servos are {driver.servos}."
    assert driver.writes.tolist() == [0] * len(driver.arms), "Commands were sent before connect."
    for forged in (np.zeros(8), [0.0] * 8, None):
        try:
            driver.write(forged)  # type: ignore[arg-type]
        except TypeError:
            continue
        raise AssertionError(f"A {type(forged).__name__} is written, which no filter has seen.")
