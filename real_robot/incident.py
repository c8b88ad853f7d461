"""`stringline-incident`: prints the log of an incident, or replays it on emulated arms."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from stringline.datasets.command.application import run
from stringline.datasets.extensions.class_names import ClassName
from stringline.datasets.extensions.trust import Trust
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.incidents.incident_log import Incident
from stringline.real_robot.incidents.incident_table import IncidentTable
from stringline.real_robot.replay.incident_replay import replay
from stringline.real_robot.robots.backends import robot_backend

_IMAGE_PX = 128  # The images are not used.


def main() -> None:
    """Runs the command; its exit code is 3 if the answers of a replay differ."""
    run("incident", show, stopped="Stopped.")


def show(config: DictConfig) -> None:
    """Prints the table of a log, or replays it."""
    incident = Incident.open(Path(config.file))
    if config.replay:
        _replay(incident)
        return
    last_s = None if config.last_s is None else float(config.last_s)
    table = IncidentTable(
        incident, last_s=last_s, every_cycle=bool(config.every_cycle), wire=bool(config.wire)
    )
    for line in table.lines():
        sys.stdout.write(f"{line}\n")


def _replay(incident: Incident) -> None:
    configuration = incident.header.get("configuration", {})
    with emulator_of(configuration) as emulator:
        result = replay(
            incident,
            emulator,
            seed=int(configuration.get("seed", 0)),
            options=configuration.get("options"),
        )
    sys.stdout.write(f"{result.sent} bytes sent; {result.equal} answered bytes as recorded.\n")
    if result.difference:
        sys.stdout.write(f"The first difference: {result.difference}\n")
        raise SystemExit(3)


def emulator_of(configuration: Mapping[str, Any]) -> Emulator:
    """Builds the emulator of a deployment, whose configuration is in the header of its log.

    It runs in lock-step and without cameras. For real arms it has no task, so its answers are the
    same only until the arms move.
    """
    robot = configuration.get("robot", {})
    foreign = robot.get("backend")
    if foreign is not None:
        Trust("The log").check(ClassName.parse(str(foreign), "robot"))
    backend = robot_backend(
        robot.get("transport"), str(robot.get("arms", "one")), robot.get("driver") or {}, foreign
    )
    settings = robot.get("emulator")
    if settings is not None:
        # The default appearance of the arms, since images are not used.
        chosen = {key: value for key, value in settings.items() if key != "robot_model"}
        return backend.emulator(lock_step=True, cameras=(), image_size=_IMAGE_PX, **chosen)
    return backend.bare_emulator(lock_step=True)


if __name__ == "__main__":
    main()
