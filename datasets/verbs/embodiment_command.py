"""`stringline-data embodiment`: the file of a robot from its URDF or MJCF, shown and compared.

A picture shows the surfaces of its links, capsules, joints and gripper frames, at home.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
from matplotlib.figure import Figure
from omegaconf import DictConfig, OmegaConf

from stringline.datasets.command.application import report_next
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import SERIES, Array
from stringline.datasets.embodiments.capsule_fitting import surface_of
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.embodiment_file import (
    EmbodimentFile,
    JointPart,
    compile_embodiment,
    moving_joints,
)
from stringline.datasets.embodiments.embodiment_source import (
    load_parts,
    model_path,
    tell_missing,
)
from stringline.datasets.embodiments.model_file import RobotModel, read_model
from stringline.datasets.embodiments.model_survey import candidates, survey, written
from stringline.datasets.embodiments.transforms import (
    Matrix,
    inverse,
    pose,
    rotation_of,
    rotation_of_angles,
)
from stringline.datasets.files.atomic import write_file
from stringline.datasets.formats.conversions import FAR_MM
from stringline.datasets.formats.joint_names import match_joints
from stringline.datasets.store.store import EpisodeStore

VIEWS = ((20.0, -60.0), (20.0, 30.0), (90.0, -90.0))
"""Elevation and azimuth of the views, degrees."""
AXIS_M = 0.1
_MOST_POINTS = 6000
_AROUND = 24
_COLOURS = ("tab:red", "tab:green", "tab:blue")


def draw_robot(robot: RobotModel, file: EmbodimentFile, embodiment: Embodiment, path: Path) -> None:
    """Writes a PNG of a robot at home, seen from three sides.

    Surfaces are grey points, capsules orange rings, links black, gripper frames red (x), green (y)
    and blue (z), the base frame as well.
    """
    figure = Figure(figsize=(15, 5), layout="constrained")
    surface = _surface(robot, file, embodiment)
    chains = _joints(embodiment)
    here = embodiment.forward_kinematics(embodiment.home)
    everything = np.concatenate([surface, *chains, *(T[None, :3, 3] for T in here.values())])
    middle = (everything.min(axis=0) + everything.max(axis=0)) / 2
    half = max(float(np.ptp(everything, axis=0).max()) / 2, AXIS_M)
    for number, (elevation, azimuth) in enumerate(VIEWS, 1):
        axes = figure.add_subplot(1, len(VIEWS), number, projection="3d")
        axes.view_init(elevation, azimuth)
        axes.scatter(*surface.T, s=0.4, c="0.6", depthshade=False)
        for capsule in embodiment.capsules(embodiment.home):
            for ring in _rings(capsule.start, capsule.end, capsule.radius):
                axes.plot(*ring.T, c="tab:orange", lw=0.6)
        for places in chains:
            axes.plot(*places.T, c="black", marker="o", ms=3, lw=1)
        for T in (np.eye(4), *here.values()):
            for column, colour in enumerate(_COLOURS):
                ends = np.stack([T[:3, 3], T[:3, 3] + AXIS_M * T[:3, column]])
                axes.plot(*ends.T, c=colour, lw=2)
        for name, centre in zip(("xlim", "ylim", "zlim"), middle, strict=True):
            axes.set(**{name: (centre - half, centre + half)})
        axes.set(xlabel="x, m", ylabel="y, m", zlabel="z, m", box_aspect=(1, 1, 1))
    figure.suptitle(f"{embodiment.name} at home: links, capsules, gripper frames")
    figure.savefig(path, dpi=100)


def _surface(robot: RobotModel, file: EmbodimentFile, embodiment: Embodiment) -> Vector:
    """Returns points (N, 3) of the surfaces of all arms at home, in the base frame."""
    found = [np.zeros((0, 3))]
    random = np.random.default_rng(0)
    for arm, part in file.arms.items():
        angles = embodiment.home[embodiment.revolute_joints[arm]]
        names = [robot.model.joint(number).name for number in moving_joints(robot, file, arm)]
        positions = {**file.fixed, **dict(zip(names, angles.tolist(), strict=True))}
        grip = part.gripper
        if grip is not None and grip.joint is not None:
            positions[grip.joint] = grip.open
        data = robot.positions(positions)
        base, T_body_base = robot.frame(part.base, "base frame")
        T_world_base = _pose(data.xpos[base], data.xmat[base]) @ T_body_base
        T_base_world = part.pose.matrix @ inverse(T_world_base)
        for body in range(1, robot.model.nbody):
            points = surface_of(robot, body)
            if len(points) > (most := _MOST_POINTS // robot.model.nbody):
                points = points[random.choice(len(points), most, replace=False)]
            T = T_base_world @ _pose(data.xpos[body], data.xmat[body])
            found.append(points @ T[:3, :3].T + T[:3, 3])
    return np.concatenate(found)


def _pose(position: Vector, rotation: Vector) -> Matrix:
    return pose(position, rotation.reshape(3, 3))


def _joints(embodiment: Embodiment) -> list[Vector]:
    """Returns the places (L, 3) of the root, the joints and the gripper of each arm."""
    found = []
    for chain in embodiment.chains:
        poses = embodiment.link_poses(chain, embodiment.home)
        ends = [*poses, poses[-1] @ chain.T_last_gripper]
        found.append(np.stack([T[:3, 3] for T in ends]))
    return found


def _rings(start: Vector, end: Vector, radius: float) -> list[Vector]:
    """Returns circles (N, 3) around both ends of a capsule, and its outline along two planes."""
    axis = end - start
    length = float(np.linalg.norm(axis))
    along = axis / length if length > 0 else np.array([0.0, 0.0, 1.0])
    across = np.linalg.svd(along[None])[2][1:]
    angle = np.linspace(0, 2 * np.pi, _AROUND)
    circle = radius * (np.cos(angle)[:, None] * across[0] + np.sin(angle)[:, None] * across[1])
    half = np.linspace(-np.pi / 2, np.pi / 2, _AROUND // 2)
    outlines = []
    for side in across:
        cap = np.cos(half)[:, None] * along + np.sin(half)[:, None] * side
        loop = np.concatenate([end + radius * cap, start - radius * cap])
        outlines.append(np.concatenate([loop, loop[:1]]))
    return [start + circle, end + circle, *outlines]


_MOST_STEPS = 2000  # Steps of the recordings that are compared.
_YAML = (".yaml", ".yml")


def describe_embodiment(config: DictConfig) -> None:
    """Shows a robot, and writes its file.

    Raises:
        ValueError: The model or an option is invalid.
    """
    source = str(config.model)
    if Path(source).suffix.lower() in _YAML and config.output is not None:
        raise ValueError(
            f"output={config.output} is written from a URDF or MJCF; got model={source}, which is "
            "such a file already. Omit output."
        )
    robot, file = _parts(config)
    embodiment = compile_embodiment(robot, file)
    sys.stdout.writelines(f"{line}\n" for line in report(robot, file, embodiment))
    if config.recordings is not None:
        compare = comparison(robot, file, embodiment, Path(config.recordings), config.poses)
        sys.stdout.writelines(f"{line}\n" for line in compare)
    output = None if config.output is None else Path(config.output)
    if output is not None:
        text = written(_complete(robot, file, embodiment, output), robot, _capsules(embodiment))
        output.parent.mkdir(parents=True, exist_ok=True)
        write_file(output, text.encode())
        sys.stdout.write(f"Written to {output}.\n")
    picture = config.picture or (output.with_suffix(".png") if output else None)
    if picture is not None:
        Path(picture).parent.mkdir(parents=True, exist_ok=True)
        draw_robot(robot, file, embodiment, Path(picture))
        sys.stdout.write(f"Picture: {picture}.\n")
    if output is not None:
        report_next("stringline-data import", {"layout": "named", "layout.embodiment": str(output)})


def _parts(config: DictConfig) -> tuple[RobotModel, EmbodimentFile]:
    """Returns the model and its file: the user's, or what the options and the model determine."""
    source = str(config.model)
    chosen = {key: config[key] for key in ("name", "tcp", "base", "gripper") if config[key]}
    if Path(source).suffix.lower() in _YAML or (
        source.startswith("menagerie:") and not chosen and not config.fixed
    ):
        if chosen:
            raise ValueError(
                f"{', '.join(chosen)} are entries of {source}; allowed: with a URDF or MJCF. Edit "
                "the file."
            )
        return load_parts(source)
    robot = read_model(model_path(source, Path()))
    tell_missing(robot)
    options = OmegaConf.to_container(OmegaConf.create(chosen), resolve=True)
    fixed = OmegaConf.to_container(config.fixed, resolve=True)
    assert isinstance(options, dict)
    assert isinstance(fixed, dict)
    return robot, survey(
        robot,
        **{str(key): value for key, value in options.items()},
        fixed=cast("dict[str, float]", fixed),
    )


def _complete(
    robot: RobotModel, file: EmbodimentFile, embodiment: Embodiment, output: Path
) -> EmbodimentFile:
    """Returns the file with limits and home of all joints, and the model relative to the output."""
    joints = {}
    arms = {}
    for arm, part in file.arms.items():
        names = [robot.model.joint(number).name for number in moving_joints(robot, file, arm)]
        home = {}
        for name, place in zip(names, embodiment.revolute_joints[arm], strict=True):
            joint = embodiment.joints[place]
            limits = (joint.lower, joint.upper)
            joints[name] = JointPart(limits, joint.velocity, joint.effort or None)
            home[name] = float(embodiment.home[place])
        arms[arm] = replace(part, home=home)
    model = file.model
    if (here := Path(model).resolve()).is_file():
        folder = output.resolve().parent
        model = str(here.relative_to(folder) if here.is_relative_to(folder) else here)
    return replace(file, joints=joints, arms=arms, model=model)


def _capsules(embodiment: Embodiment) -> list[dict[str, object]]:
    found = []
    for mount in embodiment.capsule_mounts:
        entry: dict[str, object] = {
            "link": mount.link + 1,
            "start": mount.start.round(4).tolist(),
            "end": mount.end.round(4).tolist(),
            "radius": float(np.ceil(1e4 * mount.radius + 1) / 1e4),  # Rounded ends stay inside.
        }
        if mount.per_opening.any():
            entry["per_opening"] = mount.per_opening.round(4).tolist()
        found.append(entry)
    return found


def report(robot: RobotModel, file: EmbodimentFile, embodiment: Embodiment) -> Iterator[str]:
    """Yields the lines that show a robot."""
    bodies = robot.model.nbody - 1
    shapes = len(embodiment.capsule_mounts)
    yield (
        f"{embodiment.name}: {robot.path.name}, {bodies} links, {robot.model.njnt} joints, "
        f"{len(file.arms)} arm{'s' if len(file.arms) > 1 else ''}, {shapes} capsules."
    )
    yield f"Base frame: {embodiment.base_frame}."
    yield ""
    yield f"{'joint':<28}{'arm':<8}{'kind':<9}{'limits':>22}{'speed':>9}{'effort':>9}{'home':>9}"
    for joint, home in zip(embodiment.joints, embodiment.home, strict=True):
        revolute = joint.kind == "revolute"
        limits = f"{joint.lower:.3f} to {joint.upper:.3f}{' rad' if revolute else '    '}"
        speed = f"{joint.velocity:.2f}" if revolute else ""
        effort = f"{joint.effort:.0f}" if joint.effort else ""
        yield (
            f"{joint.name:<28}{joint.arm:<8}{joint.kind:<9}{limits:>22}{speed:>9}{effort:>9}"
            f"{home:>9.3f}"
        )
    yield "Speeds in rad/s, efforts in Nm, openings from 0 (closed) to 1 (open)."
    yield ""
    here = embodiment.forward_kinematics(embodiment.home)
    for arm, part in file.arms.items():
        x, y, z = here[arm][:3, 3]
        yield (
            f"Gripper frame of {arm}: {part.tcp}, forwards along its {part.forward}, pads close "
            f"along {part.closes}; at home at ({x:.3f}, {y:.3f}, {z:.3f}) m."
        )
        grip = part.gripper
        if grip is not None and grip.joint is not None:
            yield (
                f"Gripper of {arm}: joint {grip.joint}, {grip.closed:g} closed, {grip.open:g} open."
                f" Recordings of this joint: layout.grippers={{{grip.name or grip.joint}: "
                f"{{closed: {grip.closed:g}, opened: {grip.open:g}}}}}."
            )
        elif grip is None:
            yield f"Gripper of {arm}: none in the model; recordings may have one."
    offered = ", ".join(dict.fromkeys(each.frame for each in candidates(robot)))
    yield f"Frames behind the last joints: {offered or 'none'}."


def comparison(
    robot: RobotModel,
    file: EmbodimentFile,
    embodiment: Embodiment,
    store: Path,
    series: str | None,
) -> Iterator[str]:
    """Yields the errors of the kinematics against recorded gripper poses, by frame.

    Raises:
        ValueError: The recordings lack joint positions or poses.
    """
    arms = list(file.arms) if series is None else [next(iter(file.arms))]
    for arm in arms:
        positions, recorded = _recorded(embodiment, EpisodeStore.open(store), arm, series)
        yield ""
        yield f"Recorded poses of {arm}: {len(positions)} steps of {store}."
        yield f"{'frame':<28}{'median':>12}{'largest':>12}{'turn':>12}"
        errors = {}
        for frame, found in _frames(robot, file, embodiment, arm, positions).items():
            apart = 1e3 * np.linalg.norm(found[:, :3, 3] - recorded[:, :3, 3], axis=1)
            turn = np.degrees(_angles(found, recorded))
            errors[frame] = float(np.median(apart))
            yield (
                f"{frame:<28}{errors[frame]:>9.1f} mm{apart.max():>9.1f} mm"
                f"{np.median(turn):>8.1f} deg"
            )
        own = errors[_OWN]
        best = min(errors, key=lambda frame: errors[frame])
        if own > FAR_MM:
            yield (
                f"The kinematics differ from the recorded poses by {own:.1f} mm; allowed: "
                f"{FAR_MM:g} mm. The nearest frame is {best}, {errors[best]:.1f} mm. Correct tcp, "
                "tcp_offset, base or pose, or the order and unit of the joints."
            )
        else:
            yield f"The kinematics agree with the recorded poses to {own:.1f} mm."


_OWN = "gripper (this file)"


def _frames(
    robot: RobotModel, file: EmbodimentFile, embodiment: Embodiment, arm: str, positions: Vector
) -> dict[str, Matrix]:
    """Returns the poses (T, 4, 4) of the gripper, and of the frames fixed to the last link."""
    part = file.arms[arm]
    tcp, T_body_tcp = robot.frame(part.tcp, "gripper frame (tcp)")
    gripper = embodiment.forward_kinematics(positions)[arm]
    T_gripper_tcp = inverse(part.T_tcp_gripper)
    rest = robot.positions(file.fixed)
    T_tcp = pose(rest.xpos[tcp], rest.xmat[tcp].reshape(3, 3)) @ T_body_tcp
    found = {_OWN: gripper}
    for name, (body, T_body_frame) in robot.frames.items():
        if robot.model.body_weldid[body] == robot.model.body_weldid[tcp]:
            T_frame = pose(rest.xpos[body], rest.xmat[body].reshape(3, 3)) @ T_body_frame
            found[name] = gripper @ T_gripper_tcp @ inverse(T_tcp) @ T_frame
    return found


def _recorded(
    embodiment: Embodiment, store: EpisodeStore, arm: str, series: str | None
) -> tuple[Vector, Matrix]:
    """Returns joint positions (T, J) of the embodiment and recorded poses (T, 4, 4)."""
    positions = []
    poses = []
    for episode in store.episodes():
        contract = episode.attributes.contract
        arrays = episode.arrays
        if not contract.joints:
            raise ValueError(f"{store.path} has no joint positions, which kinematics need.")
        key = f"T_base_gripper/{arm}"
        if series is not None:
            key = series if series.startswith(SERIES) else f"{SERIES}{series}"
        elif key not in arrays and len(embodiment.arms) == len(contract.arms) == 1:
            key = f"T_base_gripper/{contract.arms[0]}"
        if key not in arrays:
            offered = [each for each in arrays if each.startswith((SERIES, "T_base_gripper/"))]
            raise unknown_name("recorded poses", key, offered)
        positions.append(_ordered(embodiment, contract.joints, arrays["joints/position"]))
        poses.append(_poses(key, np.asarray(arrays[key], np.float64)))
    if not positions:
        raise ValueError(f"{store.path} has no episodes.")
    joined = np.concatenate(positions)
    recorded = np.concatenate(poses)
    stride = -(-len(joined) // _MOST_STEPS)
    return joined[::stride], recorded[::stride]


def _ordered(embodiment: Embodiment, names: Sequence[str], recorded: Array) -> Vector:
    """Returns recorded positions (T, J) in the order of the embodiment; openings may be absent."""
    revolute = [place for place, joint in enumerate(embodiment.joints) if joint.kind == "revolute"]
    arm = replace(
        embodiment,
        joints=tuple(embodiment.joints[place] for place in revolute),
        home=embodiment.home[revolute],
    )
    others: Mapping[str, None] = {
        name: None for name in names if name.rpartition("/")[2].lower() == "gripper"
    }
    match = match_joints(arm, names, "state", option=dict(others))
    found = np.tile(embodiment.home, (len(recorded), 1))
    found[:, revolute] = recorded[:, list(match.columns)]
    return found


def _poses(key: str, values: Vector) -> Matrix:
    """Returns poses (T, 4, 4) of matrices, or of 3, 6 or 7 numbers per step."""
    if values.shape[1:] in ((4, 4), (16,)):
        return values.reshape(-1, 4, 4)
    if values.ndim != 2 or values.shape[1] not in (3, 6, 7):
        raise ValueError(
            f"{key} has shape {values.shape}; allowed: (T, 3) positions, (T, 6) with roll, pitch "
            "and yaw, (T, 7) with a quaternion x y z w, (T, 16) or (T, 4, 4)."
        )
    result = np.tile(np.eye(4), (len(values), 1, 1))
    result[:, :3, 3] = values[:, :3]
    for place, row in enumerate(values[:, 3:]):
        if len(row) == 3:
            result[place, :3, :3] = rotation_of_angles(row)
        elif len(row) == 4:
            result[place, :3, :3] = rotation_of(row[[3, 0, 1, 2]] / np.linalg.norm(row))
    return result


def _angles(first: Matrix, second: Matrix) -> Vector:
    """Returns the angles (T,) between rotations of poses (T, 4, 4), rad."""
    trace = np.einsum("tij,tij->t", first[:, :3, :3], second[:, :3, :3])
    return np.asarray(np.arccos(np.clip((trace - 1) / 2, -1.0, 1.0)))
