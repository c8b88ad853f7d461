"""Recording of one demonstration by an expert, optionally with a disturbed execution."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import Range
from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.contract.distributions import distribution
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.store.episode import INTERVENTIONS
from stringline.sim.collection.disturbances import SHARES, LostGrasp, MissedGrasp, Slip
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert_registry import Expert
from stringline.sim.looks.looks import HELD_OUT_LOOKS, LOOKS, OPTION, PLAIN
from stringline.sim.rollout.world_interface import HasDraws, World

CAMERA_KEYS = ("rgb/", "depth/", "segmentation/", "time/", "intrinsics/", "T_base_camera/")
WorldT = TypeVar("WorldT", bound=World)
NOISE_SECONDS = 0.25  # Correlation time of the disturbance.
NOISES_RAD = Range(least=0, most=0.2)


@dataclass(frozen=True)
class Recording:
    """An episode in memory.

    Attributes:
        arrays: Arrays of the contract, with time as the leading axis.
        stage: The furthest stage.
        error: Reason why the expert stopped early; empty without one.
        lost_grasp: Arm, time and duration of the opening of a gripper, see `LostGrasp`; None if
            there was none.
        missed_grasp: Displacement of a gripper near an object, see `MissedGrasp`; None if there was
            none.
        drawn: What the episode has drawn by option, see `HasDraws`.
        segments: Names of the segments by number; empty without segmentations.
        takeover: Sign, time and step of the takeover of an expert from a policy; None without one.
        interventions: First step of each part in which an expert leads that corrects a policy, and
            the step after its last; None for demonstrations.
    """

    arrays: Mapping[str, Array]
    success: bool
    stage: int
    error: str = ""
    lost_grasp: Mapping[str, Any] | None = None
    missed_grasp: Mapping[str, Any] | None = None
    drawn: Mapping[str, Any] = field(default_factory=dict)
    segments: tuple[str, ...] = ()
    takeover: Mapping[str, Any] | None = None
    interventions: Sequence[tuple[int, int]] | None = None

    def extra(self) -> dict[str, Any]:
        """Returns what is stored beside the recipe: disturbances, draws and segments, if any."""
        events = {
            "lost_grasp": self.lost_grasp,
            "missed_grasp": self.missed_grasp,
            "takeover": self.takeover,
        }
        disturbances = {name: dict(event) for name, event in events.items() if event is not None}
        drawn: dict[str, Any] = {"drawn": dict(self.drawn)} if self.drawn else {}
        if self.interventions is not None:
            drawn[INTERVENTIONS] = [list(part) for part in self.interventions]
        if self.error and self.interventions is not None:
            drawn["ended"] = self.error
        return disturbances | drawn | ({"segments": list(self.segments)} if self.segments else {})


@dataclass
class Rows:
    """Observations so far by key, of control periods and of frames; its length counts actions."""

    steps: dict[str, list[Array]] = field(default_factory=dict)
    frames: dict[str, list[Array]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.steps.get("action", ()))

    def append(self, rows: dict[str, list[Array]], observation: Mapping[str, Array]) -> None:
        """Adds an observation to `steps` or `frames`."""
        for key, value in observation.items():
            rows.setdefault(key, []).append(value)


def record_episode(
    env: WorldT,
    expert: Expert[WorldT],
    seed: int,
    *,
    noise_rad: float = 0.0,
    slip_m: float = 0.0,
    lost_grasps: float = 0.0,
    missed_grasps: float = 0.0,
    options: Mapping[str, Any] | None = None,
) -> Recording:
    """Runs the expert on the episode of a seed; the same seed gives the same recording.

    Args:
        env: The environment, whose cameras are recorded at its frame rate.
        expert: Expert of the environment's task.
        seed: Seed of the initial state, of the expert's variation and of the disturbance.
        noise_rad: Largest standard deviation of an Ornstein-Uhlenbeck disturbance of the executed
            targets of revolute joints; each episode draws its share. The undisturbed targets are
            recorded, so that the data shows the recovery.
        slip_m: Distance by which a held object slips between the pads, once in the episode; only in
            a `TaskEnvironment`.
        lost_grasps: Probability that the gripper opens once during a grasp, for 0.4 s, in spite of
            its command; only in a `TaskEnvironment`. The command is recorded, so that the data
            shows how the expert grasps again.
        missed_grasps: Probability that an arm is displaced once while it approaches an object, see
            `MissedGrasp`; only in a `TaskEnvironment`. The data shows how the expert corrects it.
        options: Options of the task, such as `table_height`.

    Raises:
        ValueError: A disturbance is out of range, or the world cannot have it.
    """
    check_disturbances(
        env, noise_rad=noise_rad, lost_grasps=lost_grasps, missed_grasps=missed_grasps
    )
    children = np.random.SeedSequence(seed).spawn(5)
    expert_rng, *rngs = map(np.random.default_rng, children)
    env.begin(seed, options)
    expert.reset(env, expert_rng)
    disturbances = _Disturbances(env, rngs, noise_rad, slip_m, lost_grasps, missed_grasps)
    rows = Rows()
    success = False
    problem = ""
    while not success and env.time < env.time_limit_s:
        look(env, rows)
        try:
            action = expert.act(env)
        except OutOfReachError as error:
            problem = str(error)
            action = np.asarray(rows.steps.get("action", [env.start])[-1], dtype=np.float64)
        rows.append(rows.steps, {"action": action.astype(np.float32)})
        result = env.advance(disturbances.executed(env, action))
        disturbances.after_step(env)
        success = result.success
        if problem or result.expired:
            break
    lost, missed = disturbances.describe()
    found = recording_of(env, rows, success=success, error=problem)
    return replace(found, lost_grasp=lost, missed_grasp=missed)


class _Disturbances:
    """The disturbances of one episode, each with a random generator of its own."""

    def __init__(
        self,
        env: World,
        rngs: Sequence[np.random.Generator],
        noise_rad: float,
        slip_m: float,
        lost_grasps: float,
        missed_grasps: float,
    ) -> None:
        noise, slip, loss, miss = rngs
        period = 1.0 / env.contract.control_hz
        self._noise = ornstein_uhlenbeck(noise, noise_rad, period, env.contract)
        self._slip = Slip(slip_m, slip)
        self._lost = LostGrasp(lost_grasps, loss)
        self._missed = MissedGrasp(env.embodiment, missed_grasps, miss)

    def executed(self, env: World, action: Vector) -> Vector:
        """Returns the action (J,) to execute instead of the expert's."""
        executed = action + next(self._noise)
        if isinstance(env, TaskEnvironment):
            executed = self._lost.disturbed(env, self._missed.disturbed(env, executed))
        return executed

    def after_step(self, env: World) -> None:
        """Lets a held object slip."""
        if isinstance(env, TaskEnvironment):
            self._slip.after_step(env.task, env.physics)

    def describe(self) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
        """Returns the lost and the missed grasp as plain data, None where there was none."""
        return self._lost.describe(), self._missed.describe()


def recording_of(env: World, rows: Rows, *, success: bool, error: str) -> Recording:
    """Returns the recording of an episode that has just ended."""
    drawn, segments = _drawn(env, rows)
    return Recording(
        arrays_of(env, rows), success, env.task.stage, error, drawn=drawn, segments=segments
    )


def _drawn(env: World, rows: Rows) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Returns what the episode has drawn, and the names of the recorded segments."""
    drawn = dict(env.drawn) if isinstance(env, HasDraws) else {}
    recorded = any(key.startswith("segmentation/") for key in rows.frames)
    return drawn, env.segments if recorded and isinstance(env, TaskEnvironment) else ()


def check_disturbances(
    env: World, *, noise_rad: float = 0.0, lost_grasps: float, missed_grasps: float
) -> None:
    """Checks that a world can have the disturbances of demonstrations.

    Raises:
        ValueError: A share is not 0 to 1, or it is above 0 in a third-party world, or there is
            noise and no command of a joint.
    """
    if noise_rad and not _commands_joints(env.contract).any():
        raise ValueError(
            f"noise_rad is {noise_rad:g}; {env.task.name} has no commands of joints in rad, so it "
            "allows only 0."
        )
    SHARES.check(lost_grasps=lost_grasps, missed_grasps=missed_grasps)
    for name, share in (("lost_grasps", lost_grasps), ("missed_grasps", missed_grasps)):
        if share and not isinstance(env, TaskEnvironment):
            raise ValueError(
                f"{name} is {share:g}; the third-party task {env.task.name} allows only 0."
            )


def check_looks_of_demonstrations(options: Mapping[str, Any]) -> None:
    """Checks that no episode has the looks that are held out for evaluations.

    Raises:
        ValueError: One can have them, or there are no such looks.
    """
    if HELD_OUT_LOOKS in distribution(OPTION, options.get(OPTION, PLAIN), LOOKS).values:
        allowed = ", ".join(name for name in LOOKS if name != HELD_OUT_LOOKS)
        raise ValueError(
            f"looks={HELD_OUT_LOOKS} is for evaluations; allowed in demonstrations: {allowed}."
        )


def ornstein_uhlenbeck(
    rng: np.random.Generator, largest: float, step_seconds: float, contract: Contract
) -> Iterator[Vector]:
    """Yields disturbances (A,) of a stationary Ornstein-Uhlenbeck process: of joints, rad; else 0.

    x' = a x + s sqrt(1 - a^2) n with a = exp(-dt / tau) (Gillespie 1996): the standard deviation is
    s at every step. s is drawn once from U(0, largest), rad.
    """
    NOISES_RAD.check(noise_rad=largest)
    revolute = _commands_joints(contract)
    keep = np.exp(-step_seconds / NOISE_SECONDS)
    deviation = largest * rng.uniform() * revolute
    value = deviation * rng.standard_normal(len(revolute))
    while True:
        yield value
        value = keep * value + np.sqrt(1 - keep**2) * deviation * rng.standard_normal(len(revolute))


def _commands_joints(contract: Contract) -> Vector:
    """Returns 1 for each dimension (A,) of an action that is a joint in rad, else 0."""
    return np.array([one.kind == "joint" and one.unit == "rad" for one in contract.action], float)


def look(env: World, rows: Rows) -> None:
    """Adds the state of this control period, and a frame if one is due."""
    frame = env.frame_due
    observation = env.observe(cameras=frame)
    state = {key: value for key, value in observation.items() if not key.startswith(CAMERA_KEYS)}
    rows.append(rows.steps, state)
    rows.append(
        rows.steps,
        {"stage": np.asarray(env.task.stage, np.int32), "sim/state": env.physics.get_state()},
    )
    if frame:
        rows.append(
            rows.frames, {key: value for key, value in observation.items() if key not in state}
        )
    rows.append(
        rows.steps, {"frame": np.asarray(len(next(iter(rows.frames.values()), ())) - 1, np.int32)}
    )


def arrays_of(env: World, rows: Rows) -> dict[str, Array]:
    """Returns the arrays of an episode by the keys of the contract."""
    still = {mount.name for mount in env.embodiment.cameras if mount.parent == "world"}
    arrays: dict[str, Array] = {key: np.stack(values) for key, values in rows.steps.items()}
    frame: NDArray[np.int32] = arrays.pop("frame")
    arrays |= {key: np.stack(values) for key, values in rows.frames.items()}
    for camera in env.contract.cameras:
        arrays[f"frame/{camera.name}"] = frame
        arrays[f"intrinsics/{camera.name}"] = arrays[f"intrinsics/{camera.name}"][0]
        if camera.name in still:
            arrays[f"T_base_camera/{camera.name}"] = arrays[f"T_base_camera/{camera.name}"][0]
    return arrays
