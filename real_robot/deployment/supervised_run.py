"""A policy by the clock under an operator's eyes: held, ended, taken over and resumed by keys."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.policies.chunks.chunk import Session
from stringline.real_robot.deployment.interruptible_session import AttentiveSession
from stringline.real_robot.deployment.leader_teleoperation import Teleoperation
from stringline.real_robot.device.braking import brake, braked_after
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.lock_step import fault_of
from stringline.real_robot.execution.real_time import LiveEpisode, RealTimeRobot
from stringline.real_robot.operator.live_status import say, say_fault
from stringline.real_robot.operator.operator_keys import IN_WORDS, Key, Keys
from stringline.real_robot.safety.reasons import Reason

_LOOK_EVERY = 10  # Cycles between two looks at what the device process has told.


@dataclass(frozen=True)
class Supervision:
    """What surrounds a policy that drives arms.

    Attributes:
        device: Of the arms.
        embodiment: The body.
        keys: Of the operator.
        home_s: Seconds of the way to the home pose that the operator may ask for; 0 where arms
            cannot be moved.
        watchers: Get the device's recent states, oldest first, now and then and at the end of each
            segment.
        leaders: With which a person may take over.
        led: Gets the state and the target (J,) of each period in which a person leads.
    """

    device: DeviceProcess
    embodiment: Embodiment
    keys: Keys
    home_s: float = 4.0
    watchers: tuple[Callable[[list[DeviceState]], None], ...] = ()
    leaders: Teleoperation | None = None
    led: Callable[[DeviceState, Vector], None] = lambda *_: None

    def known(self) -> tuple[Key, ...]:
        """Returns the keys that mean something while a policy acts."""
        return (
            Key.HOLD,
            Key.END,
            *([Key.HOME] if self.home_s else []),
            *([Key.TAKE_OVER] if self.leaders else []),
        )

    def words(self) -> str:
        """Returns the keys in words."""
        kept = [Key.KEEP] if self.device.incidents is not None else []
        return "; ".join(IN_WORDS[key] for key in (*self.known(), Key.RESET, *kept))


@dataclass
class SupervisedRun:
    """One episode in as many segments as the operator makes of it.

    Attributes:
        robot: Runs the policy.
        session: Begins a session of the policy; each segment has its own, for plans made before a
            hold do not count after it.
        execute_steps: See `RealTimeRobot.run`.
        around: What surrounds it.
        total: What was counted over all segments.
    """

    robot: RealTimeRobot
    session: Callable[[], Session]
    execute_steps: int | None
    around: Supervision
    total: LiveEpisode = field(default_factory=LiveEpisode)
    _pressed: Key | None = field(default=None, init=False)
    _looked: int = field(default=0, init=False)

    def run(
        self,
        seconds: float,
        *,
        done: Callable[[], bool],
        report: Callable[[DeviceState, float], None],
    ) -> LiveEpisode:
        """Runs until the time is over, the task is done, or the operator ends it; time in a hold does not count.

        However it ends, by Ctrl-C or an error too, the arms brake then: nothing is said, recorded
        or waited for before that. A key does not wait for a policy that has not answered yet.

        Args:
            seconds: Longest time in which the policy acts.
            done: Says whether the task is done, as far as anybody knows.
            report: Gets the newest state and the seconds so far, many times a second.
        """
        while True:
            with braked_after(self.around.device):
                episode = self._segment(seconds, done=done, report=report)
            episode.fault = episode.fault or fault_of(
                self.around.device
            )  # One may come up while the arms brake.
            self._add(episode)
            self._look(None)
            if not self._goes_on(episode):
                return self.total

    def _segment(
        self,
        seconds: float,
        *,
        done: Callable[[], bool],
        report: Callable[[DeviceState, float], None],
    ) -> LiveEpisode:
        before = self.total.seconds
        self._pressed = None
        session = AttentiveSession(self.session(), self._key, lambda: brake(self.around.device))

        def show(state: DeviceState, now: float) -> None:
            report(state, before + now)
            self._look(state)

        return self.robot.run(
            session,
            max(seconds - before, 0.0),
            execute_steps=self.execute_steps,
            done=lambda: self._key() or done(),
            report=show,
        )

    def _key(self) -> bool:
        if self._pressed is not None:
            return True  # While the policy was asked.
        key = self.around.keys.pressed()
        if key is Key.KEEP and self.around.device.incidents is not None:
            self.around.device.incidents.keep("the operator's key")
        self._pressed = key if key in self.around.known() else None
        return self._pressed is not None

    def _look(self, state: DeviceState | None) -> None:
        if state is not None and 0 <= state.tick - self._looked < _LOOK_EVERY:
            return
        recent = [
            past
            for past in self.around.device.recent()
            if state is None or past.session == state.session
        ]
        self._looked = recent[-1].tick if recent else 0
        for watch in self.around.watchers:
            watch(recent)

    def _add(self, episode: LiveEpisode) -> None:
        total = self.total
        total.seconds += episode.seconds
        total.plans, total.refused, total.waits = (
            getattr(total, name) + getattr(episode, name) for name in ("plans", "refused", "waits")
        )
        total.answer_ms += episode.answer_ms
        total.waited_for += episode.waited_for
        total.counts = Counter[Reason](total.counts) + Counter[Reason](episode.counts)
        # The device process counts late cycles over all episodes.
        total.late = episode.late
        total.fault = episode.fault

    def _goes_on(self, episode: LiveEpisode) -> bool:
        """Does what the key that ended a segment asks for; returns whether another segment follows."""
        keys = self.around.keys
        if episode.fault:
            return self._reset(episode.fault)
        key = self._pressed
        self._pressed = None
        if key is Key.HOLD:
            say("The arms hold.")
            key = keys.wait(*self.around.known())
            if not self._sound():
                return False
            if key is Key.HOLD:
                return True
        if key is Key.TAKE_OVER and self.around.leaders is not None:
            return self._take_over(self.around.leaders)
        if key is Key.HOME and self.around.home_s:
            self._go_home()
        elif key is Key.END:
            say("The arms hold.")
        return False

    def _reset(self, fault: list[str]) -> bool:
        """Tells a fault and returns whether the operator says that it is over."""
        say_fault(fault)
        return self.around.keys.wait(Key.RESET, Key.END) is Key.RESET

    def _sound(self) -> bool:
        """Returns whether arms that were waited with are without a fault, or their operator says that it is over."""
        fault = fault_of(self.around.device)
        if not fault:
            return True
        self.total.fault = fault
        if reset := self._reset(fault):
            self.total.fault = []
        return reset

    def _go_home(self) -> None:
        keys = self.around.keys
        home = self.around.embodiment.home
        say("The arms move to their home pose; any key that means something stops them.")
        approach = Approach(self.around.device, self.around.embodiment)
        if not approach.to(
            home,
            self.around.home_s,
            "their home pose",
            lambda: keys.pressed() in self.around.known(),
        ):
            say("The arms hold.")

    def _take_over(self, leaders: Teleoperation) -> bool:
        """Lets a person lead until the key comes again; returns whether the policy goes on after that."""
        keys = self.around.keys
        device = self.around.device
        pressed: list[Key] = []

        def stop() -> bool:
            if (key := keys.pressed()) in (Key.TAKE_OVER, Key.END) and key is not None:
                pressed.append(key)
            return bool(pressed)

        if not leaders.wait(float("inf"), stop=stop, say=say):
            return pressed[-1] is Key.TAKE_OVER and self._sound()
        if not self._sound():
            return False
        say("You lead.")
        with braked_after(device):
            led = leaders.run(
                float("inf"),
                stop=stop,
                record=self.around.led,
                report=lambda state, _: self._look(state),
            )
        say(f"You led for {led.seconds:.1f} s, with {led.targets} targets.")
        if led.fault:
            self.total.fault = led.fault
            return self._reset(led.fault)
        return self._sound() and pressed[-1] is Key.TAKE_OVER
