"""What a person who steers should know, as a piece of HTML."""

import html
from collections.abc import Sequence

from stringline.sim.teleop.operation import Operation, Phase

RED, AMBER, GREEN = "#ff6b6b", "#ffb74d", "#69db7c"


def status_html(operation: Operation, speed: float, notes: Sequence[str]) -> str:
    """Says what is to be done, how far it is, what is recorded, and what is wrong.

    Args:
        operation: What goes on.
        speed: Of the world, as a share of real time.
        notes: What is wrong, or special, in words; empty ones are left out.
    """
    task, result = operation.world.task, operation.result
    lines = [
        f"<b>{html.escape(task.instruction)}</b>",
        _recording(operation),
        f"stage {result.stage} of {len(task.stages) - 1}: {html.escape(task.stages[result.stage])}; success: "
        + (_coloured("yes", GREEN) if result.success else "no"),
        f"{result.time:.1f} s, {100 * speed:.0f} % of real time",
        *(_coloured(note, AMBER) for note in notes if note),
        html.escape(operation.notice),
    ]
    return f'<div style="padding: 0 1em; line-height: 1.5">{"<br>".join(line for line in lines if line)}</div>'


def _recording(operation: Operation) -> str:
    takes = operation.takes
    phase = str(operation.phase) if operation.phase is Phase.FREE else _coloured(str(operation.phase), RED)
    seconds = f", {takes.steps / operation.world.contract.control_hz:.1f} s" if takes.open else ""
    return f"{phase}{seconds}; seed {operation.seed}; {len(takes.kept)} kept"


def _coloured(text: str, colour: str) -> str:
    return f'<span style="color: {colour}">{html.escape(text)}</span>'
