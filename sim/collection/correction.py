"""Recording of one episode of a policy that an expert corrects.

The policy is in another process, as in an evaluation: the recording is a generator that yields
observations and receives chunks. Once the expert has taken over, it acts until the end.
"""

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import LABELLED_STEPS, LABELS, Array
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.sim.collection.demonstration import Recording, Rows, look, recording_of
from stringline.sim.collection.takeovers import Takeovers, TakeoverSigns
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert_registry import CorrectingExpert
from stringline.sim.experts.skills import Scene
from stringline.sim.rollout.rollout import Answer, PlannedActions

FALLEN = "{} lies on the floor"
LATE = "the expert has not finished {:g} s after its takeover"


def record_correction(
    env: TaskEnvironment,
    expert: CorrectingExpert[TaskEnvironment],
    seed: int,
    takeovers: Takeovers,
    *,
    time_limit_s: float,
    execute_steps: int | None,
    options: Mapping[str, Any] | None = None,
) -> Generator[dict[str, Array], Answer, Recording]:
    """Runs a policy until the expert takes over, and the expert until the end of the episode.

    The same seed, policy and settings give the same recording. An episode in which an object has
    fallen onto the floor ends with that reason.

    Args:
        env: The environment, whose cameras are recorded at its frame rate.
        expert: Expert of the environment's task.
        seed: Seed of the initial state, of the time of the takeover and of the expert's variation.
        takeovers: When the expert takes over.
        time_limit_s: Time limit of the policy, s; the expert has further time.
        execute_steps: Control periods between two plans; if None, whole chunks.
        options: Options of the task.

    Yields:
        Observations; send the chunk that answers each, or a delayed one.
    """
    signs_rng, expert_rng = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2))
    env.begin(seed, options)
    rows = Rows()
    scene = Scene(env, env.task)
    signs = TakeoverSigns(env, takeovers, time_limit_s, signs_rng)
    plans = PlannedActions(execute_steps, env.contract.control_hz)
    labels = Labels(env, expert, seed, takeovers.labels_s)
    last = env.start
    taken: dict[str, Any] | None = None
    success = False
    problem = ""
    while not success and not problem:
        look(env, rows)
        action = last
        if taken is None:
            if plans.wants_plan:
                labels.add(len(rows), last)
                plans.add((yield env.observe()), env.time)
            action = plans.next()
            if sign := signs.sign(action):
                taken = {"sign": sign, "time_s": env.time, "step": len(rows)}
                expert.take_over(env, expert_rng, last)
        if taken is not None:
            try:
                action = expert.act(env)
            except OutOfReachError as error:
                action, problem = last, str(error)
        rows.append(rows.steps, {"action": action.astype(np.float32)})
        last = np.asarray(action, np.float64)
        result = env.advance(last)
        success = result.success
        if not success and not problem:
            problem = _problem(env, scene, taken, takeovers.expert_time_s(time_limit_s))
    found = recording_of(env, rows, success=success, error="" if success else problem)
    return replace(
        found,
        arrays={**found.arrays, **labels.arrays()},
        takeover=taken,
        interventions=() if taken is None else ((int(taken["step"]), len(rows)),),
    )


def _problem(
    env: TaskEnvironment, scene: Scene, taken: Mapping[str, Any] | None, expert_s: float
) -> str:
    """Returns why an episode cannot continue; empty if it can."""
    if (name := scene.fallen()) is not None:
        return FALLEN.format(name)
    if taken is not None and env.time - float(taken["time_s"]) >= expert_s - 1e-9:
        return LATE.format(expert_s)
    return "the physics became unstable" if env.unstable else ""


class Labels:
    """What the expert would do at some steps of a policy: its motion in a branch of the episode.

    A motion is more than an action here, because experts move from rest to rest: their first action
    repeats the last one. The labels of chunks are the beginnings of motions, those of keyposes
    their first events.
    """

    def __init__(
        self,
        env: TaskEnvironment,
        expert: CorrectingExpert[TaskEnvironment],
        seed: int,
        seconds: float,
    ) -> None:
        self._env = env
        self._expert = expert
        self._seed = seed
        self._count = round(seconds * env.contract.control_hz)
        self._steps: list[int] = []
        self._motions: list[Array] = []

    def add(self, step: int, targets: Vector) -> None:
        """Adds the motion from the present state, in which the last targets are `targets` (J,)."""
        if not self._count:
            return
        rng = np.random.default_rng([self._seed, step])
        motion: list[Vector] = []
        with self._env.branch():
            self._expert.take_over(self._env, rng, targets)
            try:
                while len(motion) < self._count:
                    motion.append(self._expert.act(self._env))
                    self._env.advance(motion[-1])
            except OutOfReachError:
                pass
        if motion:
            motion += [motion[-1]] * (self._count - len(motion))
            self._steps.append(step)
            self._motions.append(np.stack(motion).astype(np.float32))

    def arrays(self) -> dict[str, Array]:
        """Returns the labels by the keys of an episode; empty without labels."""
        if not self._steps:
            return {}
        return {
            LABELLED_STEPS: np.array(self._steps, np.int32),
            LABELS: np.stack(self._motions),
        }
