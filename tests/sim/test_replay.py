"""`stringline-replay` says why the states of disturbed demonstrations differ."""

import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.sim.in_process import InProcess

from stringline.sim import replay
from stringline.sim.collect import collect
from stringline.sim.collection.collection_state import Recipe


@pytest.mark.parametrize("noise_rad", [0.0, 0.02])
def test_the_disturbance_of_a_demonstration_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    noise_rad: float,
) -> None:
    recipe = Recipe(cameras=(), time_limit_s=0.2, keep_failures=True, noise_rad=noise_rad)
    with closing(InProcess()) as here:
        collect(recipe, tmp_path / "store", 1, cluster=here)
    monkeypatch.setattr(sys, "argv", ["stringline-replay", f"store={tmp_path / 'store'}"])
    replay.main()
    said = capsys.readouterr().out
    reason = (
        "The recorded actions are undisturbed, but disturbed ones were executed (noise_rad=0.02), "
        "so the states differ.\n"
    )
    assert said.endswith(reason) == (noise_rad > 0)
    assert "replayed 10 steps" in said
