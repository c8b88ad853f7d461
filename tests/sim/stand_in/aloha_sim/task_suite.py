"""The interface of aloha_sim's module of this name: `TASK_FACTORIES` and `create_task_env`.

Its arms are chains of ALOHA 2's revolute joints, its task is to turn the right arm away. Everything
that a user of it meets is as it is there: composer's environment, compiled anew in each episode; 14
numbers with grippers in rad of the follower; `joints_pos` and images that come late; cameras of
480x848, of which those on the wrists are put in place only if they are asked for.
"""

import copy
from collections import OrderedDict
from typing import Any

import numpy as np
from dm_control import composer, mjcf
from dm_control.composer.observation import observable

from stringline.datasets.embodiments.aloha import LINKS

CLOSED, OPEN = -0.06135, 1.5155
BASES = {"left": "-0.469 -0.019 0.02", "right": "0.469 -0.019 0.02"}
TURNS = {"left": "1 0 0 0", "right": "0 0 0 1"}
WRIST_CAMERA_POSITION = (-0.011, -0.0814748, -0.0095955)
HOME = (0.0, -0.959, 1.182, 0.0, -0.274, 0.0, 0.0082, 0.0082)
SENSOR = 'focal="1.93e-3 1.93e-3" sensorsize="3.896e-3 2.140e-3" resolution="1280 720"'
DEFAULT_CAMERAS = ("overhead_cam", "worms_eye_cam", "wrist_cam_left", "wrist_cam_right")


def scene() -> str:
    """Returns the model: both arms, a table with its top at 29.9 mm, a ball, and four cameras."""
    joints = [
        f"{arm}/{name}" for arm in BASES for name in (*(link[1] for link in LINKS), "left_finger")
    ]
    drives = "".join(
        (
            f'<position name="{joint}" joint="{joint}" kp="2000" dampratio="1" ctrlrange="0.002 '
            f'0.037"/>'
        )
        if joint.endswith("finger")
        else (
            f'<position name="{joint}" joint="{joint}" kp="100" dampratio="1" ctrlrange="-3.2 '
            f'3.2"/>'
        )
        for joint in joints
    )
    apart = "".join(f'<exclude body1="{arm}/base" body2="table"/>' for arm in BASES)
    arms = "".join(arm_of(name) for name in BASES)
    equal = "".join(
        f'<joint joint1="{arm}/left_finger" joint2="{arm}/right_finger" polycoef="0 1 0 0 0"/>'
        for arm in BASES
    )
    return f"""<mujoco model="scene">
      <compiler angle="radian"/><option timestep="0.002" gravity="0 0 0" integrator="implicitfast"/>
      <default><joint armature="0.1" damping="1"/></default>
      <visual><global offwidth="848" offheight="480"/></visual>
      <worldbody>
        <light pos="0 0 2"/>
        <body name="table" pos="0 0 -0.0701">
          <geom type="box" size="0.61 0.381 0.1" rgba="0.3 0.3 0.3 1"/>
        </body>
        <camera name="overhead_cam" pos="0 -0.303794 1.02524"
          quat="0.976332 0.216277 0 0" {SENSOR}/>
        <camera name="worms_eye_cam" pos="0 -0.377167 0.0616055"
          quat="0.672659 0.739953 0 0" {SENSOR}/>
        {arms}
        <body name="ball" pos="0.1 0.05 0.0499">
          <joint name="ball" type="slide" axis="0 1 0"/>
          <geom type="sphere" size="0.02" rgba="1 0 0 1" mass="0.05"/>
        </body>
      </worldbody>
      <contact>{apart}</contact>
      <equality>{equal}</equality><actuator>{drives}</actuator>
    </mujoco>"""


def arm_of(name: str) -> str:
    """Returns one arm, from its base to its fingers, as bodies that touch nothing."""
    matter = '<geom type="sphere" size="0.02" mass="0.3" contype="0" conaffinity="0"/>'
    finger = '<geom type="sphere" size="0.004" mass="0.08" contype="0" conaffinity="0"/>'
    fingers = "".join(
        f'<body pos="0.0562 {-side * 0.0191} 0.0142">{finger}<joint name="{name}/{which}_finger" '
        f'type="slide" '
        f'axis="0 {-side} 0" range="0 0.041"/></body>'
        for which, side in (("left", -1), ("right", 1))
    )
    place = 'pos="0 -0.0824748 -0.0095955" euler="2.70525955359 0 0"'
    camera = f'<camera name="wrist_cam_{name}" {place} {SENSOR}/>'
    hand = (
        f'<site name="{name}/gripper" pos="0.13 0 -0.003"/>'
        f'<body name="{name}/gripper_base" pos="0.035 0 0" euler="0 1.57 '
        f'-1.57">{finger}{camera}</body>'
    )
    inner = hand + fingers
    for link, hinge, origin, axis, (low, up), _ in reversed(LINKS):
        place, turn = " ".join(map(str, origin)), " ".join(map(str, axis))
        joint = f'<joint name="{name}/{hinge}" axis="{turn}" range="{low} {up}"/>'
        inner = f'<body name="{name}/{link}" pos="{place}">{matter}{joint}{inner}</body>'
    return f'<body name="{name}/base" pos="{BASES[name]}" quat="{TURNS[name]}">{inner}</body>'


class Arena(composer.Arena):
    """The scene."""

    def _build(self, name: str | None = None) -> None:
        self._mjcf_root = mjcf.from_xml_string(scene(), escape_separators=True)


class TurnAway(composer.Task):
    """Done when the right arm's waist has turned by half a radian.

    The ball lies somewhere else in each episode.
    """

    def __init__(
        self,
        control_timestep: float,
        cameras: tuple[str, ...],
        camera_resolution: tuple[int, int] = (480, 848),
    ) -> None:
        self._scene = Arena()
        self.control_timestep = control_timestep
        root = self._scene.mjcf_model
        self._joints = [
            root.find("joint", rf"{arm}\{joint}")
            for arm in BASES
            for joint in (*(n[1] for n in LINKS), *FINGERS)
        ]
        found: OrderedDict[str, observable.Observable] = OrderedDict()
        for camera in (root.find("camera", name) for name in cameras):
            if camera.name.startswith("wrist_cam"):
                camera.pos = WRIST_CAMERA_POSITION
            found[camera.name] = observable.MJCFCamera(
                camera,
                height=camera_resolution[0],
                width=camera_resolution[1],
                buffer_size=1,
                delay=round(0.3 / self.physics_timestep),
            )
        found["joints_pos"] = observable.Generic(positions)
        found["commanded_joints_pos"] = observable.Generic(commands)
        found["joints_vel"] = observable.MJCFFeature("qvel", self._joints)
        found["physics_state"] = observable.Generic(lambda physics: physics.get_state())
        for kind in ("pos", "vel"):
            found[f"undelayed_joints_{kind}"] = copy.copy(found[f"joints_{kind}"])
            found[f"joints_{kind}"].configure(delay=0.1 / self.physics_timestep)
        for each in found.values():
            each.enabled = True
        self._observables = found

    @property
    def root_entity(self) -> composer.Entity:
        """The arena."""
        return self._scene

    @property
    def task_observables(self) -> dict[str, observable.Observable]:
        """What is shown."""
        return dict(**self._observables)

    def get_instruction(self) -> str:
        """What a person would say."""
        return "turn the right arm away"

    def initialize_episode(
        self, physics: mjcf.Physics, random_state: np.random.RandomState
    ) -> None:
        """Arms at home; the ball anywhere."""
        physics.bind(self._joints).qpos[:] = np.tile(HOME, 2)
        np.copyto(physics.data.ctrl, np.tile([*HOME[:6], 0.002], 2))
        physics.bind(self._scene.mjcf_model.find("joint", "ball")).qpos = random_state.uniform(
            -0.1, 0.1
        )

    def before_step(
        self, physics: mjcf.Physics, action: Any, random_state: np.random.RandomState
    ) -> None:
        """Sets the drives."""
        targets = np.array(action, dtype=np.float64)
        targets[[6, 13]] = 0.002 + (targets[[6, 13]] - CLOSED) / (OPEN - CLOSED) * (0.037 - 0.002)
        np.copyto(physics.data.ctrl, targets)

    def get_reward(self, physics: mjcf.Physics) -> float:
        """1 when it is done."""
        return float(physics.data.qpos[8] > 0.5)

    def should_terminate_episode(self, physics: mjcf.Physics) -> bool:
        """Ends with it."""
        return self.get_reward(physics) >= 1.0


FINGERS = ("left_finger", "right_finger")
TASK_FACTORIES: dict[str, tuple[type[TurnAway], dict[str, Any]]] = {"TurnAway": (TurnAway, {})}


def positions(physics: mjcf.Physics) -> Any:
    """Returns 14 numbers, grippers in rad of the follower."""
    q = physics.data.qpos
    servo = CLOSED + (q[[6, 14]] - 0.0078) / (0.037 - 0.0078) * (OPEN - CLOSED)
    return np.concatenate([q[:6], servo[:1], q[8:14], servo[1:]])


def commands(physics: mjcf.Physics) -> Any:
    """Returns 14 numbers, grippers in rad of the follower."""
    found = physics.data.ctrl.copy()
    found[[6, 13]] = CLOSED + (found[[6, 13]] - 0.002) / (0.037 - 0.002) * (OPEN - CLOSED)
    return found


def create_task_env(
    task_name: str,
    time_limit: float,
    random_state: np.random.RandomState | int | None = None,
    control_timestep: float = 0.02,
    cameras: tuple[str, ...] = DEFAULT_CAMERAS,
    **kwargs: Any,
) -> composer.Environment:
    """Builds a task's environment."""
    task_class, arguments = TASK_FACTORIES[task_name]
    return composer.Environment(
        task_class(control_timestep=control_timestep, cameras=cameras, **arguments, **kwargs),
        random_state=random_state,
        time_limit=time_limit,
        strip_singleton_obs_buffer_dim=True,
        raise_exception_on_physics_error=False,
        delayed_observation_padding=composer.ObservationPadding.INITIAL_VALUE,
    )
