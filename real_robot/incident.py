"""`stringline-incident`: prints the log of an incident, or replays it on emulated arms.

Printed is a line per change, with its time relative to the first fault.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from stringline.datasets.command.application import run
from stringline.datasets.extensions.trust import ClassName, Trust
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.incidents.incident_log import Incident, json_of, unpack_chunk
from stringline.real_robot.incidents.incident_records import Entry, Kind
from stringline.real_robot.ipc.mailbox import Record
from stringline.real_robot.replay.incident_replay import replay
from stringline.real_robot.robots.backends import robot_backend
from stringline.real_robot.safety.reasons import Mode, describe_servo_error, old_cameras

_SHOWN_BYTES = 48


@dataclass(frozen=True)
class IncidentTable:
    """A table of a log.

    Attributes:
        last_s: Time before its end that is shown, seconds; None shows all.
        every_cycle: Whether cycles without a change are shown as well.
        wire: Whether raw bytes are shown.
    """

    incident: Incident
    last_s: float | None = None
    every_cycle: bool = False
    wire: bool = False
    _cycles: dict[int, Record] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Decodes the cycles once."""
        self._cycles.update({entry.number: record for entry, record in self.incident.cycles})

    def lines(self) -> Iterator[str]:
        """Yields a head, the events, and the damaged parts."""
        yield from self._about()
        yield from self._events()
        yield from self._end()

    def _about(self) -> Iterator[str]:
        header = self.incident.header
        cycles = self.incident.cycles
        clock = header.get("clock", {})
        when = (
            time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(clock["wall_ns"] / 1e9))
            if "wall_ns" in clock
            else "unknown"
        )
        yield f"Written at {when}; cause: {header.get('reason', 'unknown, the header is damaged')}."
        known = [
            f"{name.replace('_', ' ')} {header[name]}"
            for name in ("code", "checkpoint", "limits_hash")
            if name in header
        ]
        if known:
            yield f"{'; '.join(known)}."
        seconds = (cycles[-1][0].ns - cycles[0][0].ns) / 1e9 if cycles else 0.0
        late = (
            int(cycles[-1][1]["state"]["late"]) - int(cycles[0][1]["state"]["late"])
            if cycles
            else 0
        )
        yield (
            f"{len(cycles)} cycles in {seconds:.2f} s, {late} deadlines missed, "
            f"{self.incident.missing} records missing."
        )

    def _events(self) -> Iterator[str]:
        entries = self.incident.entries
        zero = self._zero()
        end = max((entry.ns for entry in entries), default=0)
        before: tuple[object, ...] = ()
        for entry in entries:
            if self.last_s is not None and entry.ns < end - self.last_s * 1e9:
                continue
            text = ""
            if entry.kind == Kind.CYCLE and entry.number in self._cycles:
                text, now = self._cycle(self._cycles[entry.number])
                text = text if self.every_cycle or now != before else ""
                before = now
            elif entry.kind == Kind.CHUNK:
                text = _chunk(entry)
            elif entry.kind == Kind.EVENT:
                text = " ".join(
                    f"{key}={value}" if key != "what" else str(value)
                    for key, value in json_of(entry).items()
                )
            elif entry.kind in (Kind.SENT, Kind.RECEIVED) and self.wire:
                text = self._bytes(entry)
            if text:
                yield f"{(entry.ns - zero) / 1e9:10.4f} s  {text}"

    def _zero(self) -> int:
        """Returns the time of the first fault, or of the last record."""
        faults = (
            entry.ns
            for entry, record in self.incident.cycles
            if int(record["state"]["mode"]) == Mode.FAULT
        )
        return next(faults, max((entry.ns for entry in self.incident.entries), default=0))

    def _cycle(self, record: Record) -> tuple[str, tuple[object, ...]]:
        """Returns a cycle as text, and the parts of it whose change shows a line."""
        state = record["state"]
        header = self.incident.header
        mode = int(state["mode"])
        reasons = int(state["reasons"])
        late = int(state["late"])
        names = header.get("reasons", [])
        acted = {
            name: float(amount)
            for bit, (name, amount) in enumerate(_zip(names, record["amounts"]))
            if reasons >> bit & 1
        }
        servos = [
            f"{name}: {describe_servo_error(int(error))}"
            for name, error in _zip(header.get("servos", []), state["servo_error"])
            if error
        ]
        silent = [
            name for name, misses in _zip(header.get("servos", []), state["servo_misses"]) if misses
        ]
        lost = [name for name, gone in _zip(header.get("buses", []), state["lost"]) if gone]
        # Logs of earlier versions lack the cameras.
        old = int(state["old_cameras"]) if "old_cameras" in (state.dtype.names or ()) else 0
        blind = old_cameras(old, header.get("cameras", []))
        parts = [f"cycle {int(state['tick'])}", _mode(mode), f"chunk {int(record['chunk'])}"]
        parts += [f"{name} {amount:.4g}" if amount else name for name, amount in acted.items()]
        parts += [f"{late} late"] * bool(late) + servos
        for what, names in (("silent", silent), ("lost", lost), ("no new images from", blind)):
            parts += [f"{what}: {', '.join(names)}"] * bool(names)
        troubles = (tuple(servos), tuple(silent), tuple(lost), tuple(blind))
        return "  ".join(parts), (mode, tuple(acted), int(record["chunk"]), late, *troubles)

    def _bytes(self, entry: Entry) -> str:
        buses = self.incident.header.get("buses", [])
        bus = buses[entry.source] if entry.source < len(buses) else f"bus {entry.source}"
        shown = entry.payload[:_SHOWN_BYTES].hex(" ") + " ..." * (len(entry.payload) > _SHOWN_BYTES)
        return (
            f"{'to' if entry.kind == Kind.SENT else 'from'} {bus}, {len(entry.payload)} bytes: "
            f"{shown}"
        )

    def _end(self) -> Iterator[str]:
        if ended := self.incident.ended:
            yield (
                f"End: {ended.get('what')}; {ended.get('lost', 0)} records lost, "
                f"{ended.get('failures', 0)} writes failed."
            )
        else:
            yield "The log is incomplete: its writer was killed, or the file is truncated."
        for damage in self.incident.damage:
            yield f"Damaged: {damage.size} bytes at offset {damage.at}: {damage.reason}."
        if self.incident.unknown:
            yield f"{self.incident.unknown} records are of kinds unknown to this version."


def _zip(names: list[Any], values: Any) -> Iterator[tuple[str, Any]]:
    return ((str(name), value) for name, value in zip(names, values, strict=False))


def _mode(mode: int) -> str:
    return Mode(mode).name if mode in set(Mode) else f"mode {mode}"


def _chunk(entry: Entry) -> str:
    try:
        chunk, session, number = unpack_chunk(entry.payload)
    except ValueError as error:
        return str(error)
    what = f"chunk {number} received" if number else "chunk refused"
    return (
        f"{what}: {len(chunk.time)} actions, {chunk.time[0]:.3f} to {chunk.time[-1]:.3f} s, "
        f"episode {session}"
    )


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
