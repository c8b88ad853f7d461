"""The run of a policy in real time under an operator, who holds, ends and takes over by keys.

The operator's side is `Supervision`: keys, watchers and leader arms. Keys also interrupt the
planning of the policy.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.policies.chunks.chunk import Session
from stringline.policies.remote.protocol import RemoteUnavailableError
from stringline.real_robot.deployment.leader_teleoperation import Teleoperation
from stringline.real_robot.device.device_process import DeviceProcess, brake, braked_after
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.lock_step import fault_of
from stringline.real_robot.execution.real_time import RealTimeEpisode, RealTimeRobot
from stringline.real_robot.operator.live_status import print_line, reset_by_operator
from stringline.real_robot.operator.operator_keys import MESSAGES, STOPS, Key, Keys
from stringline.real_robot.safety.reasons import MESSAGES as MESSAGES_OF_REASONS
from stringline.real_robot.safety.reasons import Mode, Reason

_POLL_S = 0.02


@contextmanager
def poll_while_planning(
    stop: Callable[[], bool], brake: Callable[[], None], watch: Callable[[], None]
) -> Iterator[None]:
    """Brakes the arms at once if the operator stops them while the policy plans.

    A thread calls these functions inside of the `with` block, and nothing else does; it has ended
    at the end of the block. The caller drops a plan that was interrupted.

    Args:
        stop: Returns whether the operator stops the arms; called many times a second.
        brake: Brakes the arms; called at most once.
        watch: Shows the state of the arms, which may change during a long plan; called many times a
            second.
    """
    planned = Event()

    def poll() -> None:
        stopped = False
        while not planned.wait(_POLL_S):
            if not stopped and stop():
                stopped = True
                brake()
            watch()

    with ThreadPoolExecutor(1, thread_name_prefix="keys") as pool:
        polling = pool.submit(poll)
        try:
            yield
        finally:
            planned.set()
        polling.result()


@dataclass(frozen=True)
class Supervision:
    """The operator's side of a run.

    Attributes:
        home_s: Seconds of the motion to the home pose; 0 where arms cannot be moved.
        held_key: Whether the arms move only while `Key.RUN` is held.
        watchers: Receive the device's recent states, oldest first, several times a second and at
            the end of each segment.
        leaders: Leader arms, or a page in their place, with which a person may take over.
        record_by_hand: Receives the state and the target (J,) of each period in which a person
            leads.
        reconnect_s: Longest time for which a policy that cannot be reached is asked again.
    """

    device: DeviceProcess
    embodiment: Embodiment
    keys: Keys
    home_s: float = 4.0
    held_key: bool = False
    watchers: tuple[Callable[[list[DeviceState]], None], ...] = ()
    leaders: Teleoperation | None = None
    record_by_hand: Callable[[DeviceState, Vector], None] = lambda *_: None
    reconnect_s: float = 60.0

    def active_keys(self) -> tuple[Key, ...]:
        """Returns the keys that end a segment."""
        home = [Key.HOME] if self.home_s else []
        take_over = [Key.TAKE_OVER] if self.leaders else []
        return (Key.HOLD, Key.END, *home, *take_over)

    def describe_keys(self) -> str:
        """Returns a description of all keys."""
        keep = [Key.KEEP] if self.device.incidents is not None else []
        run = [Key.RUN] if self.held_key else []
        keys = (*run, *self.active_keys(), Key.RESET, *keep)
        return "; ".join(MESSAGES[key] for key in keys)

    def report_keys(self, *, available: bool) -> None:
        """Prints a description of all keys, or that they need a terminal."""
        print_line(
            f"{self.describe_keys()}."
            if available
            else "Operator keys need a terminal; Ctrl-C makes the arms hold."
        )


def go_home(device: DeviceProcess, embodiment: Embodiment, keys: Keys, seconds: float) -> bool:
    """Moves arms to their home pose; returns whether they have arrived, or a key has stopped them.

    After a fault that the operator resets, the motion begins again.
    """
    print_line("The arms move to their home pose; any operator key stops them.")
    approach = Approach(device, embodiment, reset=lambda fault: reset_by_operator(fault, keys))
    arrived = approach.to(
        embodiment.home, seconds, "their home pose", lambda: keys.pressed() in STOPS
    )
    if not arrived:
        print_line("The arms hold.")
    return arrived


_WATCH_EVERY = 10  # Cycles between two calls of the watchers.
_ASK_AGAIN_S = 1.0


@dataclass
class SupervisedRun:
    """One episode, in one segment or, if the operator interrupts it, in several.

    Attributes:
        session: Begins a session of the policy; each segment has its own, since plans made before
            a hold are not valid after it.
        execute_steps: See `RealTimeRobot.run`.
        total: Counts over all segments.
    """

    robot: RealTimeRobot
    session: Callable[[], Session]
    execute_steps: int | None
    supervision: Supervision
    total: RealTimeEpisode = field(default_factory=RealTimeEpisode)
    _pressed: Key | None = field(default=None, init=False)
    _watched: int = field(default=0, init=False)
    _begun: Session | None = field(default=None, init=False)

    def run(
        self,
        seconds: float,
        *,
        done: Callable[[], bool],
        report: Callable[[DeviceState, float], None],
    ) -> RealTimeEpisode:
        """Runs until the time is over, the task is done, or the operator ends the run.

        The time of a hold does not count. At every end, also by Ctrl-C or an error, the arms brake
        before anything is reported or recorded. A key acts at once, also while the policy plans.
        """
        while True:
            try:
                with braked_after(self.supervision.device):
                    episode = self._segment(seconds, done=done, report=report)
            except ValueError as error:
                if not self.total.takeovers:
                    raise
                # The arms are too far for the policy where a person has led them.
                print_line(str(error))
                self._pressed = Key.HOLD
                episode = RealTimeEpisode(late=self.total.late)
            # A fault may come up while the arms brake.
            episode.fault = episode.fault or fault_of(self.supervision.device)
            self._add(episode)
            self._watch(None)
            if episode.unavailable is not None and not episode.fault:
                continues = self._ask_again(episode.unavailable)
            else:
                continues = self._continues(episode)
            if not continues:
                return self.total

    def _segment(
        self,
        seconds: float,
        *,
        done: Callable[[], bool],
        report: Callable[[DeviceState, float], None],
    ) -> RealTimeEpisode:
        before = self.total.seconds
        self._pressed = None
        device = self.supervision.device
        try:
            begun = self._begun or self.session()
        except RemoteUnavailableError as error:
            return RealTimeEpisode(unavailable=error)
        self._begun = None
        start = time.monotonic()

        def show(state: DeviceState, now: float) -> None:
            report(state, before + now)
            self._watch(state)

        return self.robot.run(
            begun,
            max(seconds - before, 0.0),
            execute_steps=self.execute_steps,
            done=lambda: self._key() or done(),
            report=show,
            planning=lambda: poll_while_planning(
                self._key,
                lambda: brake(device),
                lambda: show(device.latest(), time.monotonic() - start),
            ),
        )

    def _key(self, *anew: Key) -> bool:
        """Returns whether the operator has pressed a key that ends the segment.

        The keys `anew` count only if they were up before.
        """
        if self._pressed is not None:
            return True  # While the policy planned.
        key = self.supervision.keys.pressed(*anew)
        incidents = self.supervision.device.incidents
        if key is Key.KEEP and incidents is not None:
            incidents.keep("the operator's key")
        self._pressed = key if key in self.supervision.active_keys() else None
        if self._pressed is not None:
            self.supervision.device.hold()
        return self._pressed is not None

    def _watch(self, state: DeviceState | None) -> None:
        """Calls the watchers if enough cycles are over; if None, at the end of a segment."""
        if state is not None and 0 <= state.tick - self._watched < _WATCH_EVERY:
            return
        recent = [
            past
            for past in self.supervision.device.recent()
            if state is None or past.session == state.session
        ]
        self._watched = recent[-1].tick if recent else 0
        for watch in self.supervision.watchers:
            watch(recent)

    def _add(self, episode: RealTimeEpisode) -> None:
        total = self.total
        total.seconds += episode.seconds
        total.plans += episode.plans
        total.refused += episode.refused
        total.waits += episode.waits
        total.answer_ms += episode.answer_ms
        total.waited_for += episode.waited_for
        total.counts = Counter[Reason](total.counts) + Counter[Reason](episode.counts)
        total.following += episode.following
        # The device process counts late cycles over all episodes.
        total.late = episode.late
        total.fault = episode.fault

    def _continues(self, episode: RealTimeEpisode) -> bool:
        """Carries out the key that ended a segment; returns whether another segment follows."""
        if episode.fault:
            return self._reset(episode.fault)
        key = self._pressed
        self._pressed = None
        return key is not None and self._carry_out(key)

    def _carry_out(self, key: Key) -> bool:
        """Carries out keys until one continues or ends the run; returns whether it continues."""
        leaders = self.supervision.leaders
        while True:
            before = key
            if key is Key.HOLD:
                key = self._hold()
            elif key is Key.TAKE_OVER and leaders is not None:
                key = self._take_over(leaders)
            else:
                break
            if key is before:
                return True
        if key is Key.HOME and self.supervision.home_s:
            self._go_home()
        elif key is Key.END:
            print_line("The arms hold.")
        return False

    def _hold(self) -> Key:
        """Waits for the next key and returns it; `Key.END` if a fault is not reset."""
        print_line("The arms hold.")
        key = self.supervision.keys.wait_anew(*self.supervision.active_keys())
        return key if self._check_fault() else Key.END

    def _ask_again(self, error: RemoteUnavailableError) -> bool:
        """Asks an unavailable policy for a new session, once per second, while the arms hold.

        Returns:
            Whether the run continues, with a session or by a key; False: a key or a fault ends it.

        Raises:
            RemoteUnavailableError: It was unavailable for too long.
        """
        limit_s = self.supervision.reconnect_s
        print_line(f"{error} The arms hold; the policy is asked again for up to {limit_s:g} s.")
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            ask_at = time.monotonic() + _ASK_AGAIN_S
            while time.monotonic() < ask_at:
                if self._key():
                    return self._continues(RealTimeEpisode())
                if not self._check_fault():
                    return False
                time.sleep(_POLL_S)
            try:
                self._begun = self.session()
            except RemoteUnavailableError as again:
                error = again
            else:
                print_line("The policy has answered.")
                return True
        raise error

    def _reset(self, fault: list[str]) -> bool:
        """Reports a fault and returns whether the operator resets it after that."""
        return reset_by_operator(fault, self.supervision.keys)

    def _check_fault(self) -> bool:
        """Returns whether the arms have no fault, or the operator has reset it."""
        fault = fault_of(self.supervision.device)
        if not fault:
            return True
        self.total.fault = fault
        if reset := self._reset(fault):
            self.total.fault = []
        return reset

    def _go_home(self) -> None:
        supervision = self.supervision
        go_home(supervision.device, supervision.embodiment, supervision.keys, supervision.home_s)

    def _take_over(self, leaders: Teleoperation) -> Key:
        """Lets a person lead until a key ends that, and returns it.

        `Key.TAKE_OVER`: the policy continues; also after a fault that was reset. `Key.END`: a fault
        was not reset.
        """

        def stop() -> bool:
            return self._key(Key.TAKE_OVER)

        while leaders.wait(float("inf"), stop=stop, report=print_line):
            if not self._check_fault():
                return Key.END
            try:
                fault = self._follow(leaders, stop)
            except ValueError as error:  # The leaders have moved or fallen silent meanwhile.
                print_line(f"{error} The arms hold.")
                continue
            if fault:
                self.total.fault = fault
                return Key.TAKE_OVER if self._reset(fault) else Key.END
            break
        key = self._pressed or Key.END
        self._pressed = None
        return key if self._check_fault() else Key.END

    def _follow(self, leaders: Teleoperation, stop: Callable[[], bool]) -> list[str]:
        """Lets the arms follow the leaders; returns the reasons of a fault that ended this."""
        print_line("You lead.")
        told = Reason(0)

        def report(state: DeviceState, _: float) -> None:
            nonlocal told
            held = state.reasons & ~Reason.STARVED if state.mode is Mode.HOLD else Reason(0)
            if held and held != told:
                why = "; ".join(MESSAGES_OF_REASONS[reason] for reason in Reason if reason & held)
                print_line(f"The safety filter holds the arms: {why}. They follow you after it.")
            told = held
            self._watch(state)

        with braked_after(self.supervision.device):
            led = leaders.run(
                float("inf"),
                stop=stop,
                record=self.supervision.record_by_hand,
                report=report,
            )
        self.total.takeovers += 1
        print_line(f"You led for {led.seconds:.1f} s, with {led.targets} targets.")
        return led.fault
