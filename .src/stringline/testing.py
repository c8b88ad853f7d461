"""Checks of what a policy, an encoding, a reader, a task, a workcell and a driver promise.

Each function takes an object, or what makes it, and raises an AssertionError that says what does
not hold. They need neither pytest nor a robot, and Stringline's own classes pass them in its tests:

    from stringline.testing import check_policy

    def test_my_policy() -> None:
        check_policy(MyPolicy(contract), [observation_of(seed) for seed in range(3)])
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import mujoco
import numpy as np
import torch
from torch import Tensor

from stringline.datasets.contract.contract import Array, Observation, check_episode
from stringline.datasets.formats.foreign import Reader
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.policies.algorithms.learned_policy import LearnedPolicy
from stringline.policies.chunks.chunk import ActionChunk, Policy
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.real_robot.driver_interface.driver import ArmDriver, ArmState
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.robots.workcells import Workcell
from stringline.sim.tasks.tabletop import TabletopTask
from stringline.sim.tasks.task_registry import make_task

__all__ = [
    "check_driver",
    "check_encoding",
    "check_policy",
    "check_reader",
    "check_state",
    "check_task",
    "check_training",
    "check_workcell",
]


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


def check_state(state: ArmState, driver: ArmDriver, embodiment: Embodiment) -> None:
    """Checks a state that a driver has read from a robot or its emulator.

    Args:
        state: The result of `driver.read`.
        driver: The driver.
        embodiment: The embodiment of its arms.

    Raises:
        AssertionError: Something does not hold.
    """
    joints = len(embodiment.joints)
    arms = len(embodiment.arms)
    servos = len(driver.servos)
    grippers = len(embodiment.grippers)
    assert driver.arms == embodiment.arms, f"The arms are {driver.arms}, not {embodiment.arms}."
    for name, size, optional in (
        ("position", joints, False),
        ("velocity", joints, False),
        ("effort", joints, False),
        ("servo_error", servos, False),
        ("servo_misses", servos, False),
        ("lost", arms, False),
        ("temperature", servos, True),
        ("interlock", arms, True),
        ("commanded", joints, True),
        ("accepts", arms, True),
        ("stands", arms, True),
        ("gripper_goals", grippers, True),
        ("kept_goals", joints, True),
    ):
        shape = np.shape(getattr(state, name))
        allowed = [(size,), (0,)] if optional else [(size,)]
        assert shape in allowed, f"{name} has the shape {shape}; allowed: {allowed}."
    for name in ("position", "velocity", "effort"):
        assert np.isfinite(getattr(state, name)).all(), f"A {name} is not finite."
    outside = (state.position < embodiment.lower - 0.1) | (state.position > embodiment.upper + 0.1)
    names = [joint.name for joint, out in zip(embodiment.joints, outside, strict=True) if out]
    assert not names, f"Outside of the limits (rad, openings 0 to 1): {', '.join(names)}."


def check_workcell(cell: Workcell, poses: int = 20) -> None:
    """Checks that the embodiment of a workcell and its model agree.

    In random poses of the joints, their axes, the cameras and the pads are where the embodiment has
    them; the pads close along y, by the travel of the fingers; and the gripper reaches its home
    pose by inverse kinematics. The drives hold the home pose.

    Args:
        cell: The workcell.
        poses: Number of random poses.

    Raises:
        AssertionError: Something does not hold.
    """
    body = cell.embodiment
    root = cell.robot().mjcf_model
    model = mujoco.MjModel.from_xml_string(root.to_xml_string(), root.get_assets())
    data = mujoco.MjData(model)
    names = {mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_ACTUATOR, n) for n in range(model.nu)}
    missing = [joint.name for joint in body.joints if joint.name not in names]
    assert not missing, f"The model has no actuator {', '.join(missing)}."
    assert (body.home >= body.lower).all() and (body.home <= body.upper).all(), (
        "The home pose is outside of the limits."
    )
    rng = np.random.default_rng(0)
    for _ in range(poses):
        q = rng.uniform(body.lower, body.upper)
        _pose(cell, data, q)
        mujoco.mj_forward(model, data)
        _check_places(cell, data, q)
    _check_drives(cell, model, data)


def _pose(cell: Workcell, data: mujoco.MjData, q: Vector) -> None:
    for joint, value in zip(cell.embodiment.joints, q, strict=True):
        if joint.kind == "revolute":
            data.joint(joint.name).qpos = value
            continue
        for side in ("left", "right"):
            data.joint(f"{joint.arm}/{side}_finger").qpos = cell.fingers.travel(value)


def _check_places(cell: Workcell, data: mujoco.MjData, q: Vector) -> None:
    body = cell.embodiment
    for chain in body.chains:
        links = body.link_poses(chain, q)[1:]
        joints = [body.joints[place].name for place in body.revolute_joints[chain.arm]]
        for name, link, T_base_link in zip(joints, chain.links, links, strict=True):
            axis = T_base_link[:3, :3] @ link.axis
            beside = np.cross(data.joint(name).xanchor - T_base_link[:3, 3], axis)
            assert np.allclose(beside, 0.0, atol=1e-6), f"The axis of {name} is elsewhere."
            assert np.allclose(data.joint(name).xaxis, axis, atol=1e-6), f"{name} turns otherwise."
        T_base_gripper = body.forward_kinematics(q)[chain.arm]
        left, right = (
            T_base_gripper[:3, :3].T
            @ (data.geom(f"{chain.arm}/{side}_pad").xpos - T_base_gripper[:3, 3])
            for side in ("left", "right")
        )
        assert np.allclose((left + right)[1:], 0.0, atol=1e-3), (
            f"The gripper frame of {chain.arm} is not between the pads, which are at {left} and "
            f"{right} m in it."
        )
        assert np.allclose((left - right)[[0, 2]], 0.0, atol=1e-3), (
            f"The pads of {chain.arm} do not close along y of the gripper frame."
        )
    poses = body.camera_poses(q)
    for mount in body.cameras:
        name = mount.name if mount.parent == "world" else f"{mount.parent}/{mount.name}"
        place = data.camera(name).xpos
        assert np.allclose(place, poses[mount.name][:3, 3], atol=1e-6), (
            f"The camera {name} is at {place} m, not at {poses[mount.name][:3, 3]} m."
        )


_SETTLED_S = 1.0
_HELD_RAD = 0.02


def _check_drives(cell: Workcell, model: mujoco.MjModel, data: mujoco.MjData) -> None:
    body = cell.embodiment
    mujoco.mj_resetData(model, data)
    _pose(cell, data, body.home)
    for joint, value in zip(body.joints, body.home, strict=True):
        data.actuator(joint.name).ctrl = (
            value if joint.kind == "revolute" else cell.fingers.travel(value)
        )
    mujoco.mj_step(model, data, nstep=round(_SETTLED_S / model.opt.timestep))
    for joint, value in zip(body.joints, body.home, strict=True):
        if joint.kind == "revolute":
            off = float(data.joint(joint.name).qpos[0] - value)
            assert abs(off) < _HELD_RAD, (
                f"The drive of {joint.name} holds its home position with an error of {off:.3f} "
                "rad. Compensate gravity (gravcomp=1), or raise kp."
            )


def check_task(
    task_class: type[TabletopTask], seeds: Sequence[int] = range(3), *, time_limit_s: float = 20.0
) -> None:
    """Checks a task and its expert, without images.

    Its name imports it, the seed determines the episode, resting arms do not succeed, and the
    expert succeeds on each seed.

    Args:
        task_class: The task.
        seeds: Seeds of the episodes.
        time_limit_s: Longest episode of the expert, s.

    Raises:
        AssertionError: Something does not hold.
        ValueError: The name does not import the task, or the task has no expert.
    """
    assert type(make_task(task_class.name)) is task_class, (
        f"{task_class.name} is another class than {task_class.__module__}:{task_class.__name__}."
    )
    expert = make_expert(task_class.name)
    world = TaskEnvironment(make_task(task_class.name), cameras=(), time_limit_s=time_limit_s)
    try:
        world.begin(seed=seeds[0])
        for _ in range(round(world.contract.control_hz)):
            assert not world.advance(world.task.start).success, "Arms at rest have success."
        found = [record_episode(world, expert, seed) for seed in seeds]
        failed = [
            f"seed {seed}: {world.task.stages[each.stage]}{f', {each.error}' * bool(each.error)}"
            for seed, each in zip(seeds, found, strict=True)
            if not each.success
        ]
        assert not failed, f"The expert fails on {'; '.join(failed)}"
        again = record_episode(world, expert, seeds[0])
    finally:
        world.close()
    same = np.array_equal(found[0].arrays["action"], again.arrays["action"])
    assert same, "The same seed gives another episode: draw by `random_state` only."
