"""One cycle of the device process: read, sample the chunk in force, filter, write, publish.

The time in which the computer was suspended counts as a gap.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.device.device_state import Cause, DeviceState, chunk_of
from stringline.real_robot.driver_interface.driver import ArmDriver, ArmState, SafeCommand
from stringline.real_robot.driver_interface.interlocks import FOLLOWED, Interlock
from stringline.real_robot.incidents.incident_log import IncidentLog
from stringline.real_robot.ipc.heartbeat import is_age
from stringline.real_robot.ipc.mailbox import Mailbox, Record
from stringline.real_robot.safety.filter import SafetyFilter
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_context import NONE, Freshness
from stringline.real_robot.safety.target_stages import ChunkSampler

# The two clocks are read one after the other.
_ROUNDING_S = 1e-3


def _boot_time_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SuspensionClock:
    """Measures suspensions of the computer, during which `time.monotonic` stands still.

    Linux's CLOCK_BOOTTIME continues during a suspension.

    Args:
        awake_s: Returns seconds without suspensions.
        passed_s: Returns seconds with suspensions.
    """

    def __init__(
        self,
        awake_s: Callable[[], float] = time.monotonic,
        passed_s: Callable[[], float] = _boot_time_s,
    ) -> None:
        self._awake_s = awake_s
        self._passed_s = passed_s
        self._asleep_s = passed_s() - awake_s()

    def elapsed_s(self) -> float:
        """Returns the duration of suspensions since the last call, seconds."""
        asleep_s = self._passed_s() - self._awake_s()
        elapsed_s = asleep_s - self._asleep_s
        if elapsed_s < _ROUNDING_S:
            return 0.0
        self._asleep_s = asleep_s
        return elapsed_s


log = logging.getLogger(__name__)

Clock = Callable[[], float]
# Smallest share of a period between two commands; the rest is for the imprecision of a wait.
_SPACING = 0.98


class DeviceLoop:
    """The only user of a driver.

    Args:
        driver: Connected and armed by the caller.
        log: Records all events, or None.
        silence_s: Returns the time since the last heartbeat of the supervisor; None in lock-step.
        image_ages_s: Returns the age of the newest image of each camera; None in lock-step, or
            without monitored cameras.
        input_ages_s: Returns the times since hold-to-run and external stop permitted motion; None
            in lock-step.
        wait: Waits for seconds before a command that would follow the last one in less than a
            period; None in lock-step, and for robots that clock the cycles.

    Attributes:
        late: Skipped cycles, counted by the caller.
    """

    def __init__(
        self,
        driver: ArmDriver,
        embodiment: Embodiment,
        limits: SafetyLimits,
        period_s: float,
        *,
        chunks: Mailbox,
        states: Mailbox,
        state_layout: np.dtype[np.void],
        log: IncidentLog | None = None,
        silence_s: Callable[[], float] | None = None,
        image_ages_s: Callable[[], tuple[float, ...]] | None = None,
        input_ages_s: Callable[[], tuple[float, float]] | None = None,
        wait: Callable[[float], None] | None = None,
    ) -> None:
        self._log = log
        self._silence_s = silence_s
        self._image_ages_s = image_ages_s
        self._input_ages_s = input_ages_s
        self._wait = wait
        self._old_cameras = 0
        self._driver = driver
        self._chunks = chunks
        self._states = states
        self._layout = state_layout
        self._period_s = period_s
        self._filter = SafetyFilter(embodiment, limits, period_s)
        self._sampler = ChunkSampler()
        self._command = np.zeros(len(embodiment.joints))
        self._state: ArmState | None = None
        self._unchecked: ArmState | None = None
        self._cause: Cause | None = None
        self._known_faults = NONE
        self._unsound = False
        self._unsent: SafeCommand | None = None
        self._written_s = -np.inf
        self._delayed_s = 0.0
        self._sent_s = np.zeros(len(driver.arms))
        self._suspension = None if silence_s is None else SuspensionClock()
        self._session = -1
        self._tick = 0
        self.late = 0

    def begin(self, session: int, clock: Clock, acknowledged: Reason | None = None) -> None:
        """Begins an episode at the measured pose and drops all chunks.

        Resets the fault reasons in `acknowledged`. Others stay a fault, and events that drivers
        report only once are checked in the first cycle. None if the world is another one, so all
        faults and events are dropped, and so are the goals of the grippers.
        """
        self._sampler.clear()
        self._chunks.fresh()
        self._session = session
        if self._log is not None:
            self._log.event("begin", session=session)
        self._state = self._driver.read(clock)
        self._sent_s = np.full(len(self._driver.arms), clock())
        self._delayed_s = 0.0
        self._report_unsound(self._state, clock())
        self._unchecked = None if acknowledged is None else self._state
        kept = NONE if acknowledged is None else self._filter.fault_reasons & ~acknowledged
        self._filter.start(self._state, session, kept, new_world=acknowledged is None)
        self._command = self._filter.position
        self._publish()

    def observe(self, clock: Clock) -> None:
        """First half of a cycle: measures and publishes the state."""
        state = self._driver.read(clock)
        missed = self._unchecked
        if missed is not None:
            error = state.servo_error | missed.servo_error
            interlock = np.maximum(state.interlock, missed.interlock)
            state = replace(state, servo_error=error, interlock=interlock)
            self._unchecked = None
        self._state = state
        self._report_unsound(state, clock())
        self._publish()

    def _report_unsound(self, state: ArmState, now: float) -> None:
        """Logs which values cannot be used, when they begin to be so."""
        unsound = self._filter.unsound(state, now)
        if unsound and not self._unsound:
            log.error("The driver has measured %s.", ", ".join(unsound))
        self._unsound = bool(unsound)

    def act(self, clock: Clock) -> None:
        """Second half of a cycle: sends the filtered target of this time.

        A command is not sent after its period: the arms have come to rest by then, and a step at
        the speed before would exceed the limit of acceleration.
        """
        assert self._state is not None
        now = clock()
        self._take_chunks(now)
        target = self._sampler.target(now)
        freshness = self._freshness(now)
        command = self._unsent = self._filter.step(target, self._state, now, freshness)
        self._delayed_s = 0.0
        delay_s = clock() - now
        if delay_s <= self._period_s:
            delay_s += self._space(clock)
        if not delay_s <= self._period_s:
            self._filter.withdraw(delay_s)
        else:
            self._written_s = clock()
            self._delayed_s = max(0.0, self._written_s - now - freshness.ahead_s)
            self._judge(self._driver.write(command), command, now)
        self._unsent = None
        self._tick += 1
        state = self._publish()
        if self._log is not None:
            self._log.cycle(state, now, self._sampler.in_force, target, self._filter.amounts)

    @property
    def _due_s(self) -> float:
        """Earliest time of the next command, by the time of the last one."""
        return self._written_s + _SPACING * self._period_s

    def _space(self, clock: Clock) -> float:
        """Waits until about a period after the last command: two at once would be twice as fast.

        Cycles begin in even periods, but a slow answer of the robot delays the rest of one. Returns
        by how much the wait was longer than that, as after a suspension, seconds.
        """
        due_s = self._due_s
        if self._wait is None or (early_s := due_s - clock()) <= 0:
            return 0.0
        self._wait(early_s)
        return max(0.0, clock() - due_s)

    def _judge(self, sent: NDArray[np.bool_], command: SafeCommand, now: float) -> None:
        """Takes back the command of arms to which it was not sent, although it could have been."""
        state = self._state
        assert state is not None
        # Nothing at all, as of a driver that does not tell, means that nothing was sent.
        sent = np.broadcast_to(np.asarray(sent, dtype=np.bool_), self._sent_s.shape)
        able = ~state.lost
        if len(state.interlock):
            able &= (state.interlock == Interlock.NONE) | np.isin(state.interlock, FOLLOWED)
        # An arm that takes no command now, by its own word, is not missing one; only for so long.
        asked = able & state.accepts if len(state.accepts) else able
        self._sent_s = np.where(sent | ~able, now, self._sent_s)
        self._command = command.position
        unsent = asked & ~sent
        if unsent.any():
            age_s = float((now - self._sent_s)[unsent].max())
            self._command = self._filter.withdraw(age_s, Reason.UNSENT, unsent)

    def _freshness(self, now: float) -> Freshness:
        ages = () if self._image_ages_s is None else self._image_ages_s()
        self._old_cameras = sum(
            1 << place
            for place, age in enumerate(ages)
            if not (is_age(age) and age <= self._filter.limits.oldest_image_s)
        )
        silence = 0.0 if self._silence_s is None else self._silence_s()
        permission_age_s, stop_line_age_s = (
            (0.0, 0.0) if self._input_ages_s is None else self._input_ages_s()
        )
        return Freshness(
            action_age_s=self._sampler.overdue_s(now),
            supervisor_age_s=silence,
            image_ages_s=ages,
            plan_age_s=self._sampler.plan_age_s(now),
            suspended_s=0.0 if self._suspension is None else self._suspension.elapsed_s(),
            permission_age_s=permission_age_s,
            stop_line_age_s=stop_line_age_s,
            unsent_s=max(0.0, float((now - self._sent_s).max()) - self._period_s),
            ahead_s=0.0 if self._wait is None else max(0.0, self._due_s - now),
            delayed_s=self._delayed_s,
        )

    @property
    def at_rest(self) -> bool:
        """Whether the last command was no motion."""
        return self._filter.at_rest

    def brake_blindly(self) -> None:
        """Sends the next command of braking within the limits, whatever else does not work.

        After an error, it needs neither a measurement nor the stages of the filter. A command that
        the filter had made before the error comes first: the next one continues it.
        """
        command = self._unsent or self._filter.brake()
        self._unsent = None
        self._space(time.monotonic)
        self._written_s = time.monotonic()
        self._driver.write(command)
        self._command = command.position

    def brake(self) -> None:
        """Drops all chunks, so that the arms come to rest in the next cycles."""
        self._sampler.clear()
        self._chunks.fresh()

    def _take_chunks(self, now: float) -> None:
        for record in self._chunks.fresh():
            chunk, session = chunk_of(record)
            if chunk is None:
                self._filter.reject()
                continue
            observed_s = float(record["observed"])
            if admitted := self._filter.admit(
                chunk, session, now, float(record["image_age"]), observed_s
            ):
                self._sampler.replace(chunk, observed_s)
            if self._log is not None:
                self._log.chunk(chunk, session, self._sampler.taken if admitted else 0)

    def _publish(self) -> Record:
        assert self._state is not None
        acted = self._filter
        self._find_cause(self._state)
        state = DeviceState(
            session=self._session,
            tick=self._tick,
            late=self.late,
            mode=acted.mode,
            reasons=acted.reasons,
            fault_reasons=acted.fault_reasons,
            counts=acted.counts,
            following=acted.following,
            arms=self._filter.repaired(self._state),
            command=self._command,
            writes=self._driver.writes,
            old_cameras=self._old_cameras,
            cause=self._cause,
        )
        record = state.to_record(self._layout)
        self._states.put(record)
        return record

    def _find_cause(self, state: ArmState) -> None:
        """Stores the cause of each new fault reason until the fault is over."""
        faults = self._filter.fault_reasons
        if faults & ~self._known_faults:
            now = Cause.of(state, self._old_cameras)
            self._cause = now if self._cause is None else self._cause.joined(now)
        elif not faults:
            self._cause = None
        self._known_faults = faults
