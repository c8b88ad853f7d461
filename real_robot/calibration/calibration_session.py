"""`mode=calibrate`: measures where cameras sit, and writes the file that deployments look at."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stringline.datasets.contract.contract import Camera, Contract
from stringline.datasets.pointclouds.open3d_library import open3d
from stringline.real_robot.calibration.by_hand import ByHand
from stringline.real_robot.calibration.calibration_page import write_summary
from stringline.real_robot.calibration.calibration_settings import (
    CalibrationSettings,
    Method,
    write_poses,
)
from stringline.real_robot.calibration.capture_set import Gallery
from stringline.real_robot.calibration.opencv_library import opencv, optimisation
from stringline.real_robot.calibration.outcome import merged, outcome_of, say_outcome_of
from stringline.real_robot.calibration.visit import (
    ASK_S,
    PoseVisit,
    demand_first_way,
    demand_reachable,
)
from stringline.real_robot.cameras.calibration_file import Calibration
from stringline.real_robot.cameras.camera import Identity
from stringline.real_robot.cameras.camera_checks import CameraWords, check_cameras
from stringline.real_robot.cameras.cameras import Cameras
from stringline.real_robot.cameras.emulated_camera import emulated_serial
from stringline.real_robot.deployment.supervised_run import SupervisedRun, Supervision
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.environment_reset import begin_world
from stringline.real_robot.execution.lock_step import LockStepRobot
from stringline.real_robot.execution.real_time import RealTimeRobot
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.operator.live_status import LiveStatus, say, say_fault
from stringline.real_robot.operator.operator_keys import TerminalKeys
from stringline.real_robot.recording.observation_bridge import FrameSource
from stringline.real_robot.robots.robot_factory import RobotFactory


class CalibrationDeployment:
    """Measures cameras of a robot.

    Args:
        settings: Those of `configs/deploy.yaml`, resolved, with `calibration`.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        if settings.get("calibration") is None:
            raise ValueError(
                "mode=calibrate needs to know what to measure: calibration=kuka_wrist, or a file "
                "of your own."
            )
        self._settings = settings
        self._robot = settings["robot"]
        self._cell = RobotFactory(settings["robot"])
        self._plan = CalibrationSettings.of(settings["calibration"], self._cell.body)
        self._folder = Path(settings["output"]) / "calibration"
        if self._plan.poses is None and self._cell.emulated:
            raise ValueError(
                "Nobody can move emulated arms by hand: calibration.poses, a list of joints for "
                "each pose."
            )

    def run(self) -> bool:
        """Checks, visits the poses, solves and writes; returns whether every camera can be trusted.

        Raises:
            ValueError: A check failed.
        """
        by_hand = self._plan.poses is None
        checklist = Checklist()
        say(
            f"Calibrating {', '.join(self._plan.cameras)} of {self._cell.name}"
            + (", moved by hand" if by_hand else "")
        )
        self._cell.check(checklist, moving=not by_hand)
        known, asked = self._check(checklist)
        checklist.demand()
        with ExitStack() as stack:
            emulator = self._cell.emulator(asked)
            if emulator is not None:
                stack.enter_context(emulator)
            cameras = self._cell.cameras(emulator, asked)
            if cameras is not None:
                trusted = (
                    self._cell.calibration.without(self._plan.cameras)
                    if self._cell.calibration
                    else None
                )
                check_cameras(stack.enter_context(cameras), checklist, trusted)
            device = stack.enter_context(
                self._cell.device(
                    emulator,
                    read_only=by_hand,
                    log=self._log(),
                    cameras=cameras,
                    still_grippers=True,
                )
            )
            with checklist.check("ports and servos") as note:
                device.connect()
                note(f"{len(device.servos)} servos answer and are set as they should be")
            checklist.demand()
            with checklist.check(
                "where the arms stand" if by_hand else "goal where the arms stand, then torque"
            ) as note:
                note(" ".join(device.arm()))
            checklist.demand()
            if cameras is not None:
                cameras.look_after()
            contract = self._cell.body.contract(asked, self._cell.control_hz)
            gallery = Gallery(self._plan, self._cell.body, contract, self._folder, say)
            identities = self._identities(cameras, asked)
            fault = self._photograph(
                gallery, contract, emulator, device, cameras or emulator, stack
            )
        if fault:
            say_fault(fault)
            say("Nothing is written after a fault.")
            return False
        return self._conclude(gallery, identities, known)

    def _log(self) -> LogPlan | None:
        """Returns what of the wire and the loop is kept where."""
        kept = dict(self._settings["log"])
        folder = kept.pop("folder")
        return (
            None
            if folder is None
            else LogPlan(Path(folder), {"configuration": self._settings}, **kept)
        )

    def _check(self, checklist: Checklist) -> tuple[Calibration | None, list[Camera]]:
        """Looks at what can be looked at before a port is opened; returns what the file has so far, and the cameras."""
        plan = self._plan
        known = None
        asked: list[Camera] = []
        with checklist.check("libraries"):
            opencv()
            optimisation()
            if plan.method is Method.CLOUDS:
                open3d()
        with checklist.check("cameras to look through"):
            asked = self._asked()
        with checklist.check("file of the result") as note:
            # What cannot be read would be lost; that is for a person to decide.
            known = Calibration.read(plan.file, self._cell.body) if plan.file.exists() else None
            note(
                f"{plan.file}"
                + ("" if known is None else f", which has {', '.join(known.cameras)}")
            )
        if plan.poses is not None:
            with checklist.check("poses") as note:
                note(demand_reachable(plan.poses, self._cell.body, self._cell.limits()))
        return known, asked

    def _asked(self) -> list[Camera]:
        """Returns the cameras that take part, with images as large as they come.

        Raises:
            ValueError: One is not configured, or does not show what is needed.
        """
        offered = self._cell.contract()
        asked = []
        for name in self._plan.needed:
            camera = offered.camera(name)
            if not camera.has_geometry:
                raise ValueError(
                    f"The camera {name!r} does not tell its intrinsics: "
                    f"robot.cameras.{name}.intrinsics."
                )
            if self._plan.method is Method.CLOUDS and camera.depth is None:
                raise ValueError(f"The camera {name!r} has no depth, which clouds are made of.")
            size = (
                (self._plan.image_px,) * 2 if self._cell.emulated else (camera.height, camera.width)
            )
            asked.append(
                Camera(
                    name, *size, depth=camera.depth if self._plan.method is Method.CLOUDS else None
                )
            )
        return asked

    def _identities(self, cameras: Cameras | None, asked: Sequence[Camera]) -> dict[str, Identity]:
        if cameras is None:  # In lock-step the world is asked for its images itself.
            return {
                camera.name: Identity(
                    emulated_serial(camera.name), camera.height, camera.width, 0.0
                )
                for camera in asked
            }
        found = {handle.settings.name: handle.identity for handle in cameras.handles}
        return {name: identity for name, identity in found.items() if identity is not None}

    def _photograph(
        self,
        gallery: Gallery,
        contract: Contract,
        emulator: Emulator | None,
        device: DeviceProcess,
        frames: FrameSource | None,
        stack: ExitStack,
    ) -> Sequence[str]:
        """Has all images taken; returns why the arms were stopped, if they were."""
        body = self._cell.body
        assert frames is not None
        if self._plan.poses is None:
            ByHand(
                device,
                frames,
                contract,
                body,
                self._plan,
                keys=stack.enter_context(TerminalKeys()),
                say=say,
            ).run(gallery.take)
            return ()
        visit = PoseVisit(body, self._cell.control_hz, self._plan, take=gallery.take, say=say)
        every = max(round(ASK_S * self._cell.control_hz), 1)
        if self._cell.lock_step:
            assert emulator is not None
            fault = self._visit_in_lock_step(visit, every, contract, emulator, device)
        else:
            fault = self._visit_by_the_clock(
                visit, every, RealTimeRobot(device, frames, contract, body), emulator, device, stack
            )
        say(f"{visit.reached} of {len(self._plan.poses)} poses were reached.")
        return fault

    def _visit_in_lock_step(
        self,
        visit: PoseVisit,
        every: int,
        contract: Contract,
        emulator: Emulator,
        device: DeviceProcess,
    ) -> Sequence[str]:
        robot = LockStepRobot(
            emulator, device, contract, self._cell.body, device_hz=self._cell.device_hz
        )
        with LiveStatus(visit.longest_s) as status:
            episode = robot.run(
                visit,
                self._settings["seed"],
                execute_steps=every,
                options=self._settings["options"],
                report=status.show,
                done=lambda: visit.done,
            )
        return episode.fault

    def _visit_by_the_clock(
        self,
        visit: PoseVisit,
        every: int,
        robot: RealTimeRobot,
        emulator: Emulator | None,
        device: DeviceProcess,
        stack: ExitStack,
    ) -> Sequence[str]:
        body = self._cell.body
        if emulator is not None:
            begin_world(emulator, device, self._settings["seed"], self._settings["options"])
        elif self._robot["approach_s"]:
            say("The arms move to their home pose.")
            Approach(device, body).to(
                body.home, float(self._robot["approach_s"]), "their home pose"
            )
        assert self._plan.poses is not None
        brought = emulator is not None or bool(self._robot["approach_s"])
        demand_first_way(
            device.latest().arms.position,
            self._plan.poses[0],
            body,
            device.limits,
            near=not brought,
        )
        keys = stack.enter_context(TerminalKeys())
        watchers = (CameraWords(device.cameras, say).note,)
        around = Supervision(
            device, body, keys, home_s=float(self._robot["home_s"]), watchers=watchers
        )
        say(
            around.words() + "."
            if keys.available
            else "No terminal, hence no operator keys; Ctrl-C makes the arms hold."
        )
        supervised = SupervisedRun(robot, visit.again, every, around)
        with LiveStatus(visit.longest_s) as status:
            episode = supervised.run(visit.longest_s, done=lambda: visit.done, report=status.show)
        return episode.fault

    def _conclude(
        self, gallery: Gallery, identities: Mapping[str, Identity], known: Calibration | None
    ) -> bool:
        """Solves, writes what can be trusted, and shows all of it; returns whether that is every camera."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        body = self._cell.body
        began = time.monotonic()
        outcomes = {
            name: outcome_of(gallery, name, identities[name], date) for name in self._plan.cameras
        }
        for outcome in outcomes.values():
            say_outcome_of(outcome, say)
        good = {
            name: outcome.camera for name, outcome in outcomes.items() if outcome.camera is not None
        }
        if good:
            merged(known, good).write(self._plan.file, body)
            say(f"{', '.join(good)}: written to {self._plan.file}.")
            say(f"Deployments take it with robot.calibration_file={self._plan.file}")
        facts = [
            ("robot", f"{self._cell.name}, {body.name}"),
            ("method", self._plan.method.value),
            ("date", date),
            ("file", str(self._plan.file)),
            ("solved in", f"{time.monotonic() - began:.1f} s"),
        ]
        page = self._folder / "summary.html"
        write_summary(
            page,
            f"Calibration of {', '.join(outcomes)}",
            facts,
            [each.summary for each in outcomes.values()],
        )
        if gallery.visited:
            (self._folder / "poses.yaml").write_text(
                write_poses([gallery.visited[number] for number in sorted(gallery.visited)])
            )
        say(f"All images and what each leaves over: {page}")
        return len(good) == len(outcomes)
