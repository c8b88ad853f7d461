"""One cycle of the device process: read the arms, sample the chunk in force, filter, write, tell."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.device.device_state import DeviceState, chunk_of
from stringline.real_robot.device.fault_cause import Cause
from stringline.real_robot.driver_interface.driver import ArmDriver, ArmState
from stringline.real_robot.incidents.incident_log import IncidentLog
from stringline.real_robot.ipc.mailbox import Mailbox, Record
from stringline.real_robot.safety.filter import SafetyFilter
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.sampler import ChunkSampler
from stringline.real_robot.safety.stage_cycle import NONE, Signs

Clock = Callable[[], float]


class DeviceLoop:
    """The only user of a driver.

    Args:
        driver: Connected and armed by whoever runs the loop.
        embodiment: The body.
        limits: Of the safety filter.
        period_s: Of a cycle.
        chunks: Mailbox of chunks to come.
        states: Mailbox of states to tell.
        state_layout: Layout of a state.
        log: Takes down what happens, or None.
        silence_s: Says for how long whoever is in charge has given no sign of life; None where time
            stands still.
        image_ages_s: Says how old the newest image of each camera is; None where time stands still,
            or nobody looks.

    Attributes:
        late: Cycles that were skipped; counted by whoever runs the loop.
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
    ) -> None:
        self._log = log
        self._silence_s = silence_s
        self._image_ages_s = image_ages_s
        self._old_cameras = 0
        self._driver = driver
        self._chunks = chunks
        self._states = states
        self._layout = state_layout
        self._filter = SafetyFilter(embodiment, limits, period_s)
        self._sampler = ChunkSampler()
        self._command = np.zeros(len(embodiment.joints))
        self._state: ArmState | None = None
        self._unjudged: ArmState | None = None
        self._cause: Cause | None = None
        self._blamed = NONE
        self._session = -1
        self._tick = 0
        self.late = 0

    def begin(self, session: int, clock: Clock, told: Reason | None = None) -> None:
        """Begins an episode where the arms are; chunks of earlier ones no longer count.

        Args:
            session: Number that its chunks bear.
            clock: Of the measurement.
            told: Reasons of a fault that somebody was told: they are cleared, and others stay a
                fault. What drivers tell but once is looked at in the first cycle. None: whatever
                was before is forgotten, as in a new world.
        """
        self._sampler.clear()
        self._chunks.fresh()
        self._session = session
        if self._log is not None:
            self._log.event("begin", session=session)
        self._state = self._driver.read(clock)
        self._unjudged = None if told is None else self._state
        self._command = self._state.position
        kept = NONE if told is None else self._filter.fault_reasons & ~told
        self._filter.start(self._state, session, kept)
        self._tell()

    def observe(self, clock: Clock) -> None:
        """First half of a cycle: measures and tells."""
        state = self._driver.read(clock)
        missed = self._unjudged
        if missed is not None:
            error = state.servo_error | missed.servo_error
            barred = np.maximum(state.barred, missed.barred)
            state = replace(state, servo_error=error, barred=barred)
            self._unjudged = None
        self._state = state
        self._tell()

    def act(self, now: float) -> None:
        """Second half: moves towards the target of `now` as far as is safe."""
        assert self._state is not None
        self._take_chunks(now)
        target = self._sampler.target(now)
        signs = self._signs(now)
        command = self._filter.step(target, self._state, now, signs)
        self._driver.write(command)
        self._command = command.position
        self._tick += 1
        told = self._tell()
        if self._log is not None:
            self._log.cycle(told, now, self._sampler.in_force, target, self._filter.amounts)

    def _signs(self, now: float) -> Signs:
        ages = () if self._image_ages_s is None else self._image_ages_s()
        self._old_cameras = sum(
            1 << place for place, age in enumerate(ages) if age > self._filter.limits.oldest_image_s
        )
        silence = 0.0 if self._silence_s is None else self._silence_s()
        return Signs(self._sampler.overdue_s(now), silence, ages, self._sampler.plan_age_s(now))

    @property
    def at_rest(self) -> bool:
        """Whether the last command was no motion."""
        return self._filter.at_rest

    def brake(self) -> None:
        """Forgets the chunk in force, and those that wait, so that the next cycles bring the arms to rest."""
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

    def _tell(self) -> Record:
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
            arms=self._state,
            command=self._command,
            writes=self._driver.writes,
            old_cameras=self._old_cameras,
            cause=self._cause,
        )
        told = state.to_record(self._layout)
        self._states.put(told)
        return told

    def _find_cause(self, state: ArmState) -> None:
        """Takes down what is wrong when a reason of a fault comes up, and forgets it when the fault is over."""
        faults = self._filter.fault_reasons
        if faults & ~self._blamed:
            now = Cause.of(state, self._old_cameras)
            self._cause = now if self._cause is None else self._cause.joined(now)
        elif not faults:
            self._cause = None
        self._blamed = faults
