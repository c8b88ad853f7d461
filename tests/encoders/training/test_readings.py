"""Losses that are read every few steps: the same run, in which no step waits for the device."""

from pathlib import Path
from typing import Any

import pytest
from tests.encoders.training.noisy_line import Line, run, same_weights
from tests.encoders.training.waits import Waits
from torch import Tensor

from stringline.encoders.training.interfaces import Batch, Callbacks
from stringline.encoders.training.trainer import BrokenLossError


def test_a_run_is_the_same_however_seldom_its_losses_are_read(tmp_path: Path) -> None:
    callbacks = Callbacks(validate=lambda model: 0.5)
    often, history = run(tmp_path / "often", precision="no", callbacks=callbacks)
    seldom, later = run(tmp_path / "seldom", precision="no", callbacks=callbacks, read_every=7)
    assert same_weights(often, seldom)

    def rows(of: Any) -> list[dict[str, object]]:
        return [
            {key: value for key, value in row.items() if key not in ("seconds", "speed")}
            for row in of.rows
        ]

    assert rows(history) == rows(later)


@pytest.mark.parametrize("read_every", [1, 8])
def test_no_step_waits_between_two_readings(tmp_path: Path, read_every: int) -> None:
    """With 1, each step waits for its loss and its gradient norm."""
    with Waits() as watched:
        run(
            tmp_path,
            steps=24,
            precision="no",
            fused=True,
            read_every=read_every,
            save_every=24,
            probe_every=24,
        )
    assert watched.found == ["_local_scalar_dense"] * (24 * 2 if read_every == 1 else 0)


def test_a_broken_loss_is_found_before_anything_is_saved(tmp_path: Path) -> None:
    """At the next reading; the message names its step, its examples and how to learn more."""

    class Broken(Line):
        def loss(self, batch: Batch) -> Tensor:
            steps.append(len(steps))
            return super().loss(batch) * (float("nan") if len(steps) == 14 else 1.0)

    steps: list[int] = []
    callbacks = Callbacks(describe=lambda step, process, _: [f"window of step {step}"])
    message = (
        r"loss is nan at step 13. Its examples: window of step 13; .* The saved state of earlier "
        r"steps is unchanged. Continue with trainer.read_every=1, which names the inputs"
    )
    with pytest.raises(BrokenLossError, match=message):
        run(tmp_path, model=Broken(), callbacks=callbacks, read_every=16)
    assert len(steps) == 15, "probes are due after step 15"
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["step_00000010"]
