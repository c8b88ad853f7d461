"""Attempts of a policy in a session with a person, who may take over, and their success rates."""

from collections.abc import Sequence
from dataclasses import dataclass

from stringline.sim.statistics.intervals import Rate


@dataclass(frozen=True)
class Attempt:
    """An episode of a session.

    Attributes:
        instruction: Instruction of the policy.
        success: Whether the task was done; None if nobody has said it.
        helped: Whether a person took over.
    """

    instruction: str
    success: bool | None
    helped: bool


def rates_alone(attempts: Sequence[Attempt]) -> dict[str, Rate]:
    """Returns the success rates of a policy alone by instruction.

    An episode in which a person took over is no success of the policy; one without a label does not
    count.
    """
    found: dict[str, Rate] = {}
    for attempt in attempts:
        if attempt.success is not None:
            before = found.get(attempt.instruction, Rate(0, 0))
            alone = attempt.success and not attempt.helped
            found[attempt.instruction] = Rate(before.successes + alone, before.trials + 1)
    return found
