"""Episodes of a policy that an expert corrects: who acted, labels, signs, and the collection."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from tests.policies.algorithms.test_keypose_policy import IMAGES
from tests.policies.algorithms.test_keypose_policy import make as make_keyposes
from tests.sim.in_process import InProcess

from stringline.datasets.command.choices import CONFIGS
from stringline.datasets.contract.contract import LABELLED_STEPS, LABELS, Contract, Observation
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.store.store import EpisodeStore
from stringline.policies.checkpoints.training_record import RecordedExecution
from stringline.policies.chunks.chunk import ActionChunk, Session
from stringline.sim.collect import collect, open_recipe_world
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.collection.correction import record_correction
from stringline.sim.collection.demonstration import Recording
from stringline.sim.collection.takeovers import (
    BESIDE,
    DRAWN,
    STALLED,
    TIME_LIMIT,
    Takeovers,
    TakeoverSigns,
)
from stringline.sim.environment.environment import TaskEnvironment, make_environment
from stringline.sim.evaluation.corrected_policy import CorrectedPolicy
from stringline.sim.experts.expert_registry import make_correcting_expert, make_expert
from stringline.sim.replay import replay_episode
from stringline.sim.training.training_plan import CHECKPOINT_POLICY

TASK = "bowl_on_rack"
NO_SIGN = Takeovers(drawn=0.0, stalled_s=0.0, stage_s=0.0, beside=False)
STALLS = replace(NO_SIGN, stalled_s=0.4)
RECIPE = Recipe(TASK, cameras=("overhead",), image_size=16, frame_hz=5.0, takeovers=STALLS)


@pytest.fixture(scope="module")
def world() -> Iterator[TaskEnvironment]:
    """The world of the task, with one small camera."""
    with closing(
        make_environment(TASK, cameras=("overhead",), image_size=16, time_limit_s=60.0)
    ) as world:
        yield world


@dataclass(frozen=True)
class Drift:
    """A policy that turns the joints slowly for a second and then holds still."""

    contract: Contract

    def session(self, seed: int) -> Session:
        """Begins an episode; the seed decides on the direction."""
        return DriftSession(np.random.default_rng(seed).normal(0.0, 0.3, len(self.contract.joints)))


@dataclass(frozen=True)
class DriftSession:
    """One episode."""

    speed: Vector

    def plan(self, observation: Observation) -> ActionChunk:
        """Plans ten actions."""
        time = float(observation["time"]) + np.arange(10) / 50
        moving = np.where(time < 1.0, 1 / 50, 0.0)[:, None] * self.speed
        action = observation["joints/position"] + np.cumsum(moving, axis=0)
        return ActionChunk(time, action.astype(np.float32))


def corrected(world: TaskEnvironment, seed: int, takeovers: Takeovers, limit: float) -> Recording:
    """Runs an episode of `Drift` with corrections."""
    expert = make_correcting_expert(TASK)
    session = Drift(world.contract).session(seed)
    course = record_correction(world, expert, seed, takeovers, time_limit_s=limit, execute_steps=10)
    observation = next(course)
    while True:
        try:
            observation = course.send(session.plan(observation))
        except StopIteration as end:
            recording: Recording = end.value
            return recording


@pytest.mark.slow
def test_the_expert_finishes_what_the_policy_began_and_the_marks_tell_who_acted(
    world: TaskEnvironment,
) -> None:
    """Labels, which are made in branches of the episode, change nothing in it."""
    plain = corrected(world, 3, STALLS, 20.0)
    assert plain.success, plain.error
    assert plain.takeover is not None
    assert plain.takeover["sign"] == STALLED
    assert plain.interventions is not None
    part = (plain.takeover["step"], len(plain.arrays["time"]))
    assert list(plain.interventions) == [part]
    assert 1.0 < plain.takeover["time_s"] < 2.0
    labelled = corrected(world, 3, replace(STALLS, labels_s=1.0), 20.0)
    for key, array in plain.arrays.items():
        np.testing.assert_array_equal(array, labelled.arrays[key], err_msg=key)
    steps = labelled.arrays[LABELLED_STEPS]
    assert steps.tolist() == list(range(0, part[0], 10))
    assert labelled.arrays[LABELS].shape == (len(steps), 50, 14)
    # A motion begins where the arms have been sent, and leads away from there.
    starts = labelled.arrays["action"][np.maximum(steps - 1, 0)]
    np.testing.assert_allclose(labelled.arrays[LABELS][1:, 0], starts[1:], atol=0.05)
    assert np.abs(labelled.arrays[LABELS][:, -1] - labelled.arrays[LABELS][:, 0]).max() > 0.1


@pytest.mark.slow
def test_a_task_is_taken_over_when_its_time_is_over_or_at_the_drawn_time(
    world: TaskEnvironment,
) -> None:
    late = corrected(world, 0, replace(NO_SIGN, expert_s=0.2), 0.5)
    assert (late.takeover or {})["sign"] == TIME_LIMIT
    assert late.error == "the expert has not finished 0.2 s after its takeover"
    always = replace(NO_SIGN, drawn=1.0, from_s=0.1, until_s=0.4, expert_s=0.1)
    drawn = [corrected(world, seed, always, 5.0).takeover or {} for seed in (0, 1, 0)]
    assert {each["sign"] for each in drawn} == {DRAWN}
    assert drawn[0] == drawn[2] != drawn[1]


@pytest.mark.slow
def test_a_fallen_object_ends_the_episode_with_that_reason(world: TaskEnvironment) -> None:
    course = record_correction(
        world, make_correcting_expert(TASK), 0, STALLS, time_limit_s=9.0, execute_steps=10
    )
    observation = next(course)
    bowl = world.task.props["bowl"]
    bowl.set_pose(world.physics, np.array([0.0, 0.0, -0.5]))
    with pytest.raises(StopIteration) as end:
        course.send(Drift(world.contract).session(0).plan(observation))
    assert end.value.value.error == "bowl lies on the floor"


@pytest.mark.slow
@pytest.mark.parametrize("displaced", [True, False])
def test_a_gripper_that_closes_beside_the_object_is_a_sign(
    world: TaskEnvironment, displaced: bool
) -> None:
    """The expert's own grasp is none; with the bowl moved away at the last moment it is."""
    expert = make_expert(TASK, varied=False)
    world.begin(0)
    expert.reset(world, np.random.default_rng(0))
    signs = TakeoverSigns(world, replace(NO_SIGN, beside=True), 60.0, np.random.default_rng(0))
    bowl = world.task.props["bowl"]
    place = world.embodiment.grippers["right"]
    found = set[str]()
    moved = False
    while world.time < 4.0:
        action = expert.act(world)
        closes = world.task.robot.positions(world.physics)[place] - action[place] > 0.1
        if displaced and closes and not moved:
            at = world.task.position(world.physics, bowl) - (0.0, 0.08, 0.0)
            bowl.set_pose(world.physics, at)
            moved = True
        found.add(signs.sign(action))
        world.advance(action)
    assert found == ({"", BESIDE} if displaced else {""})


def policy_of(recipe: Recipe) -> CorrectedPolicy:
    """Returns `Drift` as a collection has a policy."""
    with closing(open_recipe_world(recipe)) as world:
        return CorrectedPolicy(
            Drift(world.contract), "digest", RecordedExecution(execute_steps=10), "stand the bowl"
        )


def test_the_next_training_has_the_corrected_policy_and_the_optimisation_of_its_kind() -> None:
    learned = make_keyposes(*IMAGES)
    policy = CorrectedPolicy(learned, "digest", RecordedExecution(), "stand the bowl")
    choices = [f"{key}={value}" for key, value in policy.training_choices().items()]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        own = compose("train", ["dataset.path=store", *choices])
        recipe = compose("train", ["dataset.path=store", "training_recipe=keyposes"])
    assert CHECKPOINT_POLICY in own.policy
    assert own.trainer == recipe.trainer


@pytest.mark.slow
def test_corrections_are_collected_continued_and_repeated(tmp_path: Path) -> None:
    policy = policy_of(RECIPE)
    with closing(InProcess()) as here:
        collect(RECIPE, tmp_path / "a", 1, cluster=here, policy=policy)
        collection = collect(RECIPE, tmp_path / "a", 2, cluster=here, policy=policy)
        collect(RECIPE, tmp_path / "b", 2, workers=2, policy=policy)
        other = replace(policy, digest="another")
        with pytest.raises(ValueError, match=r"was collected with policy=.*'digest'"):
            collect(RECIPE, tmp_path / "a", 3, cluster=here, policy=other)
    assert [outcome.takeover for outcome in collection.outcomes] == [STALLED] * 2
    both = [EpisodeStore.open(tmp_path / name).episodes() for name in "ab"]
    for one, same in zip(*both, strict=True):
        assert one.attributes == same.attributes
        assert one.attributes.source == "policy"
        assert one.attributes.interventions
        assert one.entries == same.entries
    replayed = replay_episode(both[0][0])
    assert replayed.success


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda: replace(RECIPE, task="gym_aloha_insertion"),
            "third-party task .* cannot take over",
        ),
        (lambda: replace(RECIPE, noise_rad=0.02), "noise_rad is 0.02, but corrections are not"),
        (lambda: Takeovers(drawn=2.0), "takeovers.drawn must be a number from 0 to 1"),
        (lambda: Takeovers(from_s=9.0), "from_s is 9 and until_s 8"),
    ],
)
def test_wrong_settings_are_named(
    tmp_path: Path, change: Callable[[], Recipe], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        collect(change(), tmp_path / "store", 1)
    assert not (tmp_path / "store").exists()
