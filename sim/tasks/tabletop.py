"""The base classes of all tasks, a table with the arms of a workcell, and options of episodes.

A `GoalTask` is done when all props are inside their goal, released and at rest.
"""

import zlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from dm_control import composer, mjcf

from stringline.datasets.contract.argument_checks import POSITIVE, Range, unknown_name
from stringline.datasets.contract.distributions import Distribution, distribution
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.mjcf_parts import DRAWN, HIDDEN, SCENERY
from stringline.datasets.embodiments.transforms import Matrix, pose, quaternion
from stringline.sim.looks.looks import LOOKS, OPTION, PLAIN, Scene
from stringline.sim.props.prop import Prop
from stringline.sim.rendering.rendering import set_flat_rendering
from stringline.sim.robots import arm_cell as arm_cells
from stringline.sim.robots.workcells import ALOHA_CELL, StartDraws, StartRange, Workcell
from stringline.sim.shifts.shift import NAMES, Distractors, EpisodeStart, ShiftedWorld, Shifts
from stringline.sim.tasks.handling import DROP_SPEED, Handling
from stringline.sim.tasks.success import REST_SECONDS, REST_SPEED, ContactGroups, ContactState

STRENGTHS = Range(least=0, most=1)
HEIGHT, SPREAD, STRICT = "table_height", "start_spread", "strict"
OPTIONS = (HEIGHT, SPREAD, STRICT, OPTION)


def spread_of(given: object) -> Distribution[float]:
    """Reads the share of the range of start poses, 0 for the home pose to 1.

    Raises:
        ValueError: A value is not allowed.
    """
    return distribution(SPREAD, given, STRENGTHS)


@dataclass(frozen=True)
class EpisodeOptions:
    """Values of options, or what an episode draws them from.

    Attributes:
        height: Height of the table top above the plane z = 0, metres.
        strengths: Strengths of shifts by name, 0 to 1.
        looks: Names of looks.
        start_spread: Share of the range of start poses, 0 for the home pose to 1.
    """

    height: Distribution[float]
    strengths: Mapping[str, Distribution[float]]
    looks: Distribution[str]
    start_spread: Distribution[float]

    @classmethod
    def of(
        cls, options: Mapping[str, Any], heights: tuple[float, float], usual: Mapping[str, float]
    ) -> "EpisodeOptions":
        """Reads options; `heights` are the allowed ones, and `usual` the default strengths.

        Raises:
            ValueError: An option is unknown or out of range.
        """
        for name in options:
            if name not in (*OPTIONS, *NAMES):
                raise unknown_name("task option", name, [*OPTIONS, *NAMES])
        low, high = heights
        table_tops = Range(least=low, most=high, unit="m")
        given = {**usual, **options}
        return cls(
            distribution(HEIGHT, options.get(HEIGHT, 0.0), table_tops),
            {name: distribution(name, given[name], STRENGTHS) for name in given if name in NAMES},
            distribution(OPTION, options.get(OPTION, PLAIN), LOOKS),
            spread_of(options.get(SPREAD, 0.0)),
        )

    def draw(self, seed: Sequence[int]) -> "EpisodeOptions":
        """Returns the options of an episode; each is drawn from a random stream of its own."""

        def one(name: str, values: Distribution[Any]) -> Distribution[Any]:
            tag = zlib.crc32(f"option {name}".encode())
            return Distribution((values.draw(np.random.default_rng([*seed, tag])),))

        strengths = {name: one(name, values) for name, values in self.strengths.items()}
        return EpisodeOptions(
            one(HEIGHT, self.height),
            strengths,
            one(OPTION, self.looks),
            one(SPREAD, self.start_spread),
        )

    def drawn_by(self, episode: "EpisodeOptions") -> dict[str, Any]:
        """Returns the values of an episode that `draw` has drawn from several, by option."""
        own, other = (
            {HEIGHT: each.height, SPREAD: each.start_spread, **each.strengths}
            for each in (self, episode)
        )
        return {name: other[name].value for name, values in own.items() if not values.fixed}


PHYSICS_SECONDS = 0.002
TABLE_COLOUR = (0.13, 0.15, 0.19, 1.0)


class Workbench(composer.Arena):
    """A dark table, whose top is the plane z = 0 of the base frame, and one light."""

    def _build(self, cell: Workcell, name: str = "workbench") -> None:
        super()._build(name)
        root = self.mjcf_model
        root.compiler.angle = "radian"
        root.option.timestep = PHYSICS_SECONDS
        root.option.cone = "elliptic"
        root.option.impratio = 10
        root.option.integrator = "implicitfast"
        root.option.flag.multiccd = "enable"
        set_flat_rendering(root)
        root.worldbody.add(
            "light",
            directional=True,
            pos=(0, 0, 2),
            dir=(0.2, 0.4, -1),
            diffuse=(0.5, 0.5, 0.5),
            castshadow=False,
        )
        self.table = root.worldbody.add("body", name="table")
        drawn = {"contype": 0, "conaffinity": 0, "group": DRAWN}
        top = {"pos": (*cell.table_centre, -0.02), "size": (*cell.table_half, 0.02)}
        self.table.add("geom", name="table_top", type="box", rgba=TABLE_COLOUR, **top, **drawn)
        # Contacts of round shapes with a plane are exact and cheap; no prop leaves the table.
        self.table.add(
            "geom",
            name="table",
            type="plane",
            size=(2, 2, 0.1),
            contype=SCENERY,
            conaffinity=0,
            condim=3,
            group=HIDDEN,
        )


NONE = Distribution((0.0,))
START_STREAM = zlib.crc32(b"start pose")  # A random stream of its own moves no object.


class TabletopTask(composer.Task):
    """The arms of a workcell at its table; subclasses add props, start and success criterion.

    Args:
        control_hz: Actions per second; their period is a multiple of the physics' time step, 2 ms.
        props: Props on the table.

    Attributes:
        cell: The workcell: arms and table.
        name: Name in `TASKS`, or `module:Class` for a user's task.
        start_range: Range of start poses; if None, that of the cell.
        varied_starts: Whether the arms start in this range by default (`start_spread=1`) instead of
            at home (`start_spread=0`).
        any_arm: Whether `with_embodiment` may replace the arm.
        may_be_strict: Whether the option `strict` chooses a strict success criterion, which counts
            no dropped props.
        instruction: Text that describes the task to policies and people.
        stages: Names of the stages of progress; the last is success.
        drop_speed: Speed downwards above which the strict criterion calls a prop dropped, m/s.
        robot: The arms.
        props: Props on the table by name.
        table_height: Height of the table top above the plane z = 0, metres.
        strict: Whether the success criterion is strict.
        start: (J,), joints at the start of this episode, rad and openings.
        strengths: Strengths of the shifts by name in this episode, 0 to 1.
        looks: Looks of this episode.
        drawn: What the looks and the ranges of options have drawn for this episode, plain JSON.
        stage: Index of the furthest stage of this episode.
        success: Whether the task is done now.

    Raises:
        ValueError: The physics cannot run at this rate of actions.
    """

    cell: ClassVar[Workcell] = ALOHA_CELL
    name: ClassVar[str]
    start_range: ClassVar[StartRange | None] = None
    varied_starts: ClassVar[bool] = False
    any_arm: ClassVar[bool] = False
    may_be_strict: ClassVar[bool] = False
    instruction: ClassVar[str]
    stages: ClassVar[tuple[str, ...]]
    drop_speed: ClassVar[float] = DROP_SPEED

    def __init__(self, control_hz: float, *props: Prop) -> None:
        _check_rate(control_hz)
        self._check(props)
        self._arena = Workbench(self.cell)
        self.robot = self.cell.robot()
        self._arena.attach(self.robot)
        self.props = {prop.name: prop for prop in props}
        for prop in props:
            self._arena.add_free_entity(prop)
        self.shifts = Shifts.of(
            self._arena.mjcf_model,
            self.cell.distractor_zones,
            self.cell.depth_sensor,
            self.cell.room_half_m,
        )
        self.configure()
        self.drawn: dict[str, Any] = {}
        self.start: Vector = self.embodiment.home.copy()
        self.stage = 0
        self.success = False
        self._since = np.inf
        self._starts: StartDraws | None = None
        self._handling = Handling(self.drop_speed)
        self.control_timestep = 1.0 / control_hz

    def _check(self, props: Sequence[Prop]) -> None:
        """Checks what a subclass defines."""
        name = type(self).__name__
        if len(self.stages) < 2:
            raise ValueError(
                f"{name}.stages is {self.stages}; allowed: at least two, of which the last is "
                "success."
            )
        names = [prop.name for prop in props]
        if twice := [each for each in names if names.count(each) > 1]:
            raise ValueError(
                f"{name} has two props with the name {twice[0]!r}; allowed: different names."
            )

    @property
    def root_entity(self) -> composer.Entity:
        """The arena."""
        return self._arena

    @property
    def embodiment(self) -> Embodiment:
        """The arms' description."""
        return self.cell.embodiment

    def configure(self, **options: Any) -> None:
        """Sets the options of the next episodes; options that are not given get their defaults.

        Args:
            options: `table_height` in metres, strengths of shifts, 0 to 1, by name, `looks`,
                `start_spread`, the share of the range of start poses, 0 for the home pose to 1,
                and `strict`, whether the success criterion is strict. Each but `strict` is a value,
                a list of values `{"one_of": [A, B]}`, or, for numbers, a range `[LOW, HIGH]`; each
                episode draws from them.

        Raises:
            ValueError: An option is unknown or out of range; then all options stay as they were.
        """
        rule = self.rule_of(options)
        chosen = EpisodeOptions.of(options | rule, self.cell.table_heights, self.cell.usual)
        distractors = chosen.strengths.get(Distractors.name, NONE)
        if max(distractors.values) > 0 and not self.cell.distractor_zones:
            raise ValueError(
                f"{self.name} has no room for distractors: its workcell has no distractor_zones."
            )
        self.strict: bool = rule[STRICT]
        self._options = chosen
        self._set_options(chosen)

    def _set_options(self, options: EpisodeOptions) -> None:
        self.table_height = options.height.value
        self.strengths = {name: values.value for name, values in options.strengths.items()}
        self.looks = options.looks.value
        self.start_spread = options.start_spread.value

    @classmethod
    def with_embodiment(cls, source: str) -> type[Self]:
        """Returns this task with another arm, see `arm_cell`.

        Raises:
            ValueError: The task or its workcell cannot have this arm.
        """
        if not cls.any_arm:
            raise ValueError(
                f"{arm_cells.OPTION} is {source!r}, but {cls.name} has the arms of its workcell, "
                f"{cls.cell.embodiment.name}; allowed: null, or a task for any arm, such as "
                "kuka_pick."
            )
        parts = {
            "cell": arm_cells.arm_cell(source),
            "__module__": cls.__module__,
            "__doc__": cls.__doc__,
        }
        return type(cls.__name__, (cls,), parts)

    @classmethod
    def starts_within(cls) -> StartRange | None:
        """Returns the range of start poses; None if the arms always start at home."""
        return cls.start_range or cls.cell.start_range

    @classmethod
    def rule_of(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of `start_spread` and `strict`, by default those of the task.

        Raises:
            ValueError: A value is not allowed, or the task has no range of start poses or no strict
                criterion.
        """
        spread = options.get(SPREAD, 1.0 if cls.varied_starts else 0.0)
        if spread_of(spread).highest > 0 and cls.starts_within() is None:
            raise ValueError(
                f"{SPREAD} is {spread!r}, but the workcell of {cls.name} has no range of start "
                f"poses (`start_range`); allowed: 0."
            )
        strict = options.get(STRICT, False)
        if not isinstance(strict, bool):
            raise ValueError(f"{STRICT} is {strict!r}; allowed: true, false.")
        if strict and not cls.may_be_strict:
            raise ValueError(f"{STRICT} is true, but {cls.name} has one criterion; allowed: false.")
        return {SPREAD: spread, STRICT: strict}

    @property
    def starts_at_home(self) -> bool:
        """Whether the arms start this episode at the home pose."""
        return self.start_spread == 0

    def after_compile(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Groups the shapes for contacts, and hands the model to the shifts."""
        arms = self.embodiment.arms
        groups = {
            f"{arm}/{side}_pad": self.robot.pads(arm, side)
            for arm in arms
            for side in ("left", "right")
        }
        pads = [pad for shapes in groups.values() for pad in shapes]
        for arm in arms:
            groups[arm] = [shape for shape in self.robot.shapes(arm) if shape not in pads]
        groups |= {name: prop.shapes for name, prop in self.props.items()}
        groups["table"] = [self._arena.mjcf_model.find("geom", "table")]
        self._contacts = ContactGroups(physics, groups)
        self._shapes = {
            name: np.array(physics.bind(prop.shapes).element_id, dtype=int)
            for name, prop in self.props.items()
        }
        self._places = {name: _place(physics, prop) for name, prop in self.props.items()}
        self.shifts.bind(ShiftedWorld(physics.model.ptr, self._shapes))

    def initialize_episode(
        self, physics: mjcf.Physics, random_state: np.random.RandomState
    ) -> None:
        """Places table, arms and props, and applies the shifts."""
        seed = _seed(random_state)
        options = self._options.draw(seed)
        self._set_options(options)
        self.drawn = self._options.drawn_by(options)
        self._since = np.inf
        self._handling = Handling(self.drop_speed)
        self.stage = 0
        self.success = False
        physics.bind(self._arena.table).pos = (0.0, 0.0, self.table_height)
        self.robot.put(physics, self.embodiment.home)
        self.place_props(physics, random_state)
        self.start = self._draw_start(physics, np.random.default_rng([*seed, START_STREAM]))
        self.robot.put(physics, self.start)
        spots = [(*prop.get_pose(physics)[0][:2], prop.reach) for prop in self.props.values()]
        start = EpisodeStart(np.reshape(spots, (-1, 3)), self.table_height)
        looks = self.shifts.begin(start, self.strengths, seed, self.looks, self._scene())
        if self.looks != PLAIN:
            self.drawn[OPTION] = {"name": self.looks, **looks}

    def _scene(self) -> Scene:
        """Returns what the looks read of this episode."""
        objects = {name: self._shapes[name] for name in self.props}
        ground = (*self.cell.table_centre, *self.cell.table_half, self.table_height)
        return Scene(self.name, objects, ground)

    def _draw_start(self, physics: mjcf.Physics, rng: np.random.Generator) -> Vector:
        """Returns the joints (J,) at the start, after the objects have been placed."""
        chosen = self.starts_within()
        if self.starts_at_home or chosen is None:
            return self.embodiment.home.copy()
        if self._starts is None:
            self._starts = StartDraws(self.robot, self.embodiment, chosen)
        return self._starts.draw(physics, rng, self.start_spread)

    @abstractmethod
    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws the poses of the props at the start of an episode."""

    def before_step(
        self, physics: mjcf.Physics, action: Vector, random_state: np.random.RandomState
    ) -> None:
        """Sends the joint targets (J,) to the drives."""
        self.robot.command(physics, action)

    def get_reward(self, physics: mjcf.Physics) -> float:
        """Returns 1 if the task is done, else 0."""
        return float(self.success)

    def should_terminate_episode(self, physics: mjcf.Physics) -> bool:
        """Returns whether the task is done."""
        return self.success

    def place(self, physics: mjcf.Physics, prop: Prop, T_table_prop: Matrix) -> None:
        """Places a prop, at rest, at a pose (4, 4) relative to the table top.

        Raises:
            ValueError: The prop does not belong to the task.
        """
        if self.props.get(prop.name) is not prop:
            raise ValueError(
                f"{prop.name!r} is no prop of {type(self).__name__}; give it to "
                "super().__init__(control_hz, ...)."
            )
        position = T_table_prop[:3, 3] + (0.0, 0.0, self.table_height)
        prop.set_pose(physics, position, quaternion(T_table_prop[:3, :3]))
        prop.set_velocity(physics, np.zeros(3), np.zeros(3))

    def contact_state(self, physics: mjcf.Physics) -> ContactState:
        """Returns the current contacts."""
        return ContactState(
            self._contacts.pairs(physics), self.embodiment.arms, self._contacts.names
        )

    def at_rest(self, physics: mjcf.Physics) -> bool:
        """Returns whether all points of all props are slower than 1 cm/s."""
        return all(self.speed(physics, prop) < REST_SPEED for prop in self.props.values())

    def has_lasted(self, holds: bool, physics: mjcf.Physics) -> bool:
        """Returns whether a condition, given after each period, has held for half a second."""
        self._since = min(self._since, physics.time()) if holds else np.inf
        return bool(physics.time() - self._since >= REST_SECONDS - 1e-9)

    def put_down(self, physics: mjcf.Physics, contacts: ContactState) -> bool:
        """Returns whether no prop lies where it was dropped; called after each control period.

        A criterion that is not strict does not ask.
        """
        if not self.strict:
            return True
        falling = {name: -self._velocity(physics, prop)[0][2] for name, prop in self.props.items()}
        self._handling.update(contacts, falling)
        return not self._handling.dropped

    def pose(self, physics: mjcf.Physics, prop: Prop) -> Matrix:
        """Returns a prop's pose (4, 4) in the base frame."""
        place = self._places[prop.name][0]
        values = physics.data.qpos[place : place + 7]
        return pose(values[:3], _rotation(values[3:]))

    def position(self, physics: mjcf.Physics, prop: Prop) -> Vector:
        """Returns a prop's position (3,) in the base frame, metres."""
        place = self._places[prop.name][0]
        values: Vector = physics.data.qpos[place : place + 3].copy()
        return values

    def speed(self, physics: mjcf.Physics, prop: Prop) -> float:
        """Returns an upper bound of the speed of a prop's points, m/s."""
        linear, angular = self._velocity(physics, prop)
        return float(np.linalg.norm(linear) + prop.reach * np.linalg.norm(angular))

    def _velocity(self, physics: mjcf.Physics, prop: Prop) -> tuple[Vector, Vector]:
        """Returns the linear (3,) and the angular (3,) velocity of a prop, m/s and rad/s."""
        place = self._places[prop.name][1]
        values = physics.data.qvel[place : place + 6]
        return values[:3], values[3:]


def _place(physics: mjcf.Physics, prop: Prop) -> tuple[int, int]:
    """Returns where the free joint of a prop begins in the positions and in the velocities.

    The lookup by dm_control costs more than all that is computed from a pose.
    """
    joint = mjcf.get_frame_freejoint(prop.mjcf_model)
    number = physics.model.name2id(joint.full_identifier, "joint")
    return int(physics.model.jnt_qposadr[number]), int(physics.model.jnt_dofadr[number])


def _check_rate(control_hz: float) -> None:
    POSITIVE.check(control_hz=control_hz)
    steps = 1.0 / (control_hz * PHYSICS_SECONDS)
    if steps < 1 - 1e-6 or abs(steps - round(steps)) > 1e-6:
        raise ValueError(
            f"control_hz is {control_hz}; it must divide {1 / PHYSICS_SECONDS:g}, the physics' "
            "steps per second."
        )


def _seed(random_state: np.random.RandomState) -> list[int]:
    """Returns a seed from the state of a random stream, without drawing from the stream."""
    state = random_state.get_state(legacy=False)
    assert isinstance(state, dict)
    return [int(word) for word in state["state"]["key"][:4]]


def _rotation(quat: Vector) -> Matrix:
    w, x, y, z = quat
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


class GoalTask(TabletopTask):
    """A task with a goal that is a predicate of geometry.

    Success: the goal is reached, no arm touches any prop, and all props are at rest, for half a
    second. The strict criterion does not count props that were dropped (`handling.py`). Subclasses
    draw the start in `place_props` and define the goal and the stages.
    """

    @abstractmethod
    def reached(self, physics: mjcf.Physics) -> bool:
        """Returns by geometry alone whether everything is inside its goal."""

    @abstractmethod
    def progress(self, physics: mjcf.Physics, contacts: ContactState) -> int:
        """Returns the current stage, below success; called after each control period."""

    def after_step(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Updates success and stage.

        Raises:
            ValueError: `progress` returned a stage that does not exist.
        """
        contacts = self.contact_state(physics)
        stage = self.progress(physics, contacts)
        if not 0 <= stage < len(self.stages) - 1:
            raise ValueError(
                f"{type(self).__name__}.progress returned {stage}; allowed: 0 to "
                f"{len(self.stages) - 2}, the stages below success."
            )
        put_down = self.put_down(physics, contacts)
        released = not contacts.by_any_arm(self.props) and self.reached(physics)
        self.success = self.has_lasted(released and put_down and self.at_rest(physics), physics)
        self.stage = max(self.stage, len(self.stages) - 1 if self.success else stage)
