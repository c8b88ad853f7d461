"""The arena and the base class of all tasks: a table with the arms of a workcell."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from dm_control import composer, mjcf

from stringline.datasets.contract.argument_checks import POSITIVE, unknown_name
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.mjcf_parts import DRAWN, HIDDEN, SCENERY
from stringline.datasets.embodiments.transforms import Matrix, pose, quaternion
from stringline.sim.props.prop import Prop
from stringline.sim.rendering.rendering import set_flat_rendering
from stringline.sim.robots.workcells import ALOHA_CELL, Workcell
from stringline.sim.shifts.distractors import Distractors
from stringline.sim.shifts.shift import EpisodeStart, ShiftedWorld
from stringline.sim.shifts.shift_catalogue import NAMES, Shifts, number, strength
from stringline.sim.tasks.success import REST_SECONDS, REST_SPEED, ContactGroups, ContactState

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
        self.table.add("geom", type="box", rgba=TABLE_COLOUR, **top, **drawn)
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


class TabletopTask(composer.Task):
    """The arms of a workcell at its table; subclasses add props, start and success criterion.

    Args:
        control_hz: Actions per second; their period is a multiple of the physics' time step, 2 ms.
        props: Props on the table.

    Attributes:
        cell: The workcell: arms and table.
        name: Name in `TASKS`, or `module:Class` for a user's task.
        instruction: Text that describes the task to policies and people.
        stages: Names of the stages of progress; the last is success.
        robot: The arms.
        props: Props on the table by name.
        table_height: Height of the table top above the plane z = 0, metres.
        strengths: Strengths of the shifts by name, 0 to 1.
        stage: Index of the furthest stage of this episode.
        success: Whether the task is done now.

    Raises:
        ValueError: The physics cannot run at this rate of actions.
    """

    cell: ClassVar[Workcell] = ALOHA_CELL
    name: ClassVar[str]
    instruction: ClassVar[str]
    stages: ClassVar[tuple[str, ...]]

    def __init__(self, control_hz: float, *props: Prop) -> None:
        _check_rate(control_hz)
        self._arena = Workbench(self.cell)
        self.robot = self.cell.robot()
        self._arena.attach(self.robot)
        self.props = {prop.name: prop for prop in props}
        for prop in props:
            self._arena.add_free_entity(prop)
        self.shifts = Shifts.of(
            self._arena.mjcf_model, self.cell.distractor_zones, self.cell.depth_sensor
        )
        self.strengths: Mapping[str, float] = self.cell.usual
        self.table_height = 0.0
        self.stage = 0
        self.success = False
        self._since = np.inf
        self.control_timestep = 1.0 / control_hz

    @property
    def root_entity(self) -> composer.Entity:
        """The arena."""
        return self._arena

    @property
    def embodiment(self) -> Embodiment:
        """The arms' description."""
        return self.cell.embodiment

    def configure(self, **options: float) -> None:
        """Sets the options of the next episodes; options that are not given get their defaults.

        Args:
            options: `table_height` in metres, and strengths of shifts, 0 to 1, by name.

        Raises:
            ValueError: An option is unknown or out of range; then all options stay as they were.
        """
        for name in options:
            if name not in ("table_height", *NAMES):
                raise unknown_name("task option", name, ["table_height", *NAMES])
        height = number(
            "table_height", options.get("table_height", 0.0), *self.cell.table_heights, "m"
        )
        given = {name: strength(name, value) for name, value in options.items() if name in NAMES}
        if given.get(Distractors.name, 0.0) > 0 and not self.cell.distractor_zones:
            raise ValueError(
                f"{self.name} has no room for distractors: its workcell has no distractor_zones."
            )
        self.table_height = height
        self.strengths = {**self.cell.usual, **given}

    def after_compile(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Groups the shapes for contacts, and hands the model to the shifts."""
        model = self.robot.mjcf_model
        arms = self.embodiment.arms
        groups = {
            f"{arm}/{side}_pad": [model.find("geom", f"{arm}/{side}_pad")]
            for arm in arms
            for side in ("left", "right")
        }
        pads = [pad for shapes in groups.values() for pad in shapes]
        for arm in arms:
            shapes = model.find("body", f"{arm}/base_link").find_all("geom")
            groups[arm] = [shape for shape in shapes if shape not in pads]
        groups |= {name: prop.shapes for name, prop in self.props.items()}
        groups["table"] = [self._arena.mjcf_model.find("geom", "table")]
        self._contacts = ContactGroups(physics, groups)
        objects = {
            name: np.array(physics.bind(prop.shapes).element_id, dtype=int)
            for name, prop in self.props.items()
        }
        self.shifts.bind(ShiftedWorld(physics.model.ptr, objects))

    def initialize_episode(
        self, physics: mjcf.Physics, random_state: np.random.RandomState
    ) -> None:
        """Places table, arms and props, and applies the shifts."""
        seed = _seed(random_state)
        self._since = np.inf
        self.stage = 0
        self.success = False
        physics.bind(self._arena.table).pos = (0.0, 0.0, self.table_height)
        self.robot.put(physics, self.embodiment.home)
        self.place_props(physics, random_state)
        spots = [(*prop.get_pose(physics)[0][:2], prop.reach) for prop in self.props.values()]
        self.shifts.begin(
            EpisodeStart(np.reshape(spots, (-1, 3)), self.table_height), self.strengths, seed
        )

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
        """Places a prop, at rest, at a pose (4, 4) relative to the table top."""
        position = T_table_prop[:3, 3] + (0.0, 0.0, self.table_height)
        prop.set_pose(physics, position, quaternion(T_table_prop[:3, :3]))
        prop.set_velocity(physics, np.zeros(3), np.zeros(3))

    def contact_state(self, physics: mjcf.Physics) -> ContactState:
        """Returns the current contacts."""
        return ContactState(self._contacts.pairs(physics), self.embodiment.arms)

    def at_rest(self, physics: mjcf.Physics) -> bool:
        """Returns whether all points of all props are slower than 1 cm/s."""
        return all(self.speed(physics, prop) < REST_SPEED for prop in self.props.values())

    def has_lasted(self, holds: bool, physics: mjcf.Physics) -> bool:
        """Returns whether a condition, given after each period, has held for half a second."""
        self._since = min(self._since, physics.time()) if holds else np.inf
        return bool(physics.time() - self._since >= REST_SECONDS - 1e-9)

    def pose(self, physics: mjcf.Physics, prop: Prop) -> Matrix:
        """Returns a prop's pose (4, 4) in the base frame."""
        position, turn = prop.get_pose(physics)
        return pose(position, _rotation(turn))

    def speed(self, physics: mjcf.Physics, prop: Prop) -> float:
        """Returns an upper bound of the speed of a prop's points, m/s."""
        linear, angular = prop.get_velocity(physics)
        return float(np.linalg.norm(linear) + prop.reach * np.linalg.norm(angular))


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
