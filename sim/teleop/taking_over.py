"""A policy that acts in a session, and the controls with which a person takes over from it.

The person leads while a key or a button is held down; without it the arms hold. Only a press of
another one lets the policy continue, so a lost connection never does.
"""

import time
from collections.abc import Callable
from typing import Any

from stringline.datasets.embodiments.embodiment import Vector
from stringline.policies.chunks.chunk import Policy
from stringline.policies.execution.execution import ChunkExecutor, Execution
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.rollout.rollout import DelayedChunk, PlannedActions

TAKE_OVER_KEY = "T"
CONTINUE_KEY = "P"
# A browser repeats a key some 30 times a second; the messages of a button come as often as this.
BUTTON_HZ = 20.0
HELD_S = 0.2


class HoldToRun:
    """Permits motion while a key or a button is held down, whose messages then repeat.

    A single message does not permit it: the second one within 0.2 s is the first that counts.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pressed_s = float("-inf")
        self._repeats = False

    def press(self) -> None:
        """Notes a message."""
        now = self._clock()
        self._repeats = now - self._pressed_s <= HELD_S
        self._pressed_s = now

    @property
    def held(self) -> bool:
        """Whether the key or the button is held down."""
        return self._repeats and self._clock() - self._pressed_s <= HELD_S


def add_takeover(
    gui: Any, take_over: Callable[[], object], give_back: Callable[[], object]
) -> HoldToRun:
    """Adds the controls of a takeover to a page of viser; returns what permits motion.

    The functions are called in the thread of the server: `take_over` with each message of the key
    or the button that is held down.
    """
    held = HoldToRun()

    async def press(_: Any) -> None:
        held.press()
        take_over()

    async def end(_: Any) -> None:
        give_back()

    hint = "You lead while it is held down; then the arms hold."
    gui.add_button(f"Hold to lead (key {TAKE_OVER_KEY})", color="orange", hint=hint).on_hold(
        press, callback_hz=BUTTON_HZ
    )
    hint = "The policy plans anew from where the arms are."
    gui.add_button(f"Policy continues (key {CONTINUE_KEY})", hint=hint).on_click(end)
    gui.add_command("Lead", hotkey=TAKE_OVER_KEY).on_trigger(press)
    gui.add_command("Policy continues", hotkey=CONTINUE_KEY).on_trigger(end)
    return held


class ActingPolicy:
    """A policy that acts in a world of this process, which waits for its plans.

    Args:
        policy: The policy.
        execution: Execution of its plans.
        execute_steps: Control periods between two plans; if None, whole chunks.
        instruction: Its instruction.

    Attributes:
        instruction: The instruction, which may be changed between two episodes.
    """

    def __init__(
        self, policy: Policy, execution: Execution, execute_steps: int | None, instruction: str
    ) -> None:
        self._policy = policy
        self._execution = execution
        self._execute_steps = execute_steps
        self.instruction = instruction
        self.begin(0)

    def begin(self, seed: int) -> None:
        """Begins an episode, or plans anew within one.

        Raises:
            ValueError: The policy does not know the instruction.
        """
        self._executor = ChunkExecutor(
            self._policy,
            seed,
            self._execution,
            execute_steps=self._execute_steps,
            instruction=self.instruction,
        )
        self._plans = PlannedActions(
            self._execution.replan_after(self._execute_steps), self._policy.contract.control_hz
        )

    def action(self, world: TaskEnvironment) -> Vector:
        """Returns the action (A,) of this control period."""
        if self._plans.wants_plan:
            chunk = self._executor.plan(world.observe())
            self._plans.add(DelayedChunk(chunk, self._executor.delay_steps), world.time)
        return self._plans.next()
