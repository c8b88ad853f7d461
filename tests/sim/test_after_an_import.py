"""After an import: the training command that it prints runs, and its checkpoint is measured."""

import json
import re
import shlex
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.datasets.embodiments.robot_files import write_ur5e
from tests.sim.conftest import Call
from tests.sim.test_foreign_robot import HZ, JOINTS, SIZE, STEPS, write_calibration, write_set

from stringline.datasets import data
from stringline.datasets.store.store import EpisodeStore
from stringline.sim import evaluate_recordings, train

MAINS = {"stringline-data": data.main, "stringline-train": train.main}
QUICK = (
    "trainer.steps=2",
    "trainer.batch_size=4",
    "trainer.compile=false",
    "validation_windows=0",
    "policy.observation_encoder.dim=48",
    "policy.observation_encoder.depth=1",
    "dataset.held_out=0",
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands run in a folder of their own."""
    monkeypatch.chdir(tmp_path)


def imported(call: Call, folder: Path, robot: str, *options: str) -> str:
    """Imports the recordings of an arm and returns the log."""
    return call(
        data.main,
        "import",
        f"path={folder}",
        "store=store",
        "format.depth_unit_m=0.001",
        f"format.control_hz={HZ}",
        "layout=named",
        f"layout.embodiment={robot}",
        "layout.angle_unit=rad",
        "layout.grippers={qpos_6: opening, action_6: opening}",
        *options,
    )


def next_commands(log: str) -> list[list[str]]:
    """Returns the commands of the last line."""
    last = log.splitlines()[-1]
    assert "Next: stringline-" in last, log
    return [shlex.split(one) for one in last.split("Next: ")[1].split(" && ")]


def run_printed(call: Call, log: str) -> list[str]:
    """Runs the printed commands, the training for two steps, and returns the training's options."""
    commands = next_commands(log)
    for name, *options in commands:
        small = QUICK if name == "stringline-train" else ()
        call(MAINS[name], *options, *small)
    return commands[-1][1:]


OTHER_SIZES = {"odd size": (SIZE + 4, SIZE + 8), "large": (480, 640)}
ORDER = f"layout.joints=[{','.join(JOINTS)}]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "chosen", "note"),
    [
        ("calibrated", "training_recipe=keyposes", "Chunks of actions instead of keyposes: str"),
        ("bare", "policy.chunk=40", "no camera has depth and calibration (cameras=FILE"),
        ("unknown arm", "policy/observation_encoder=vit", "layout.embodiment=FILE.urdf, menagerie"),
        ("odd size", "policy.chunk=40", "multiples of the patch, 16"),
        ("large", "policy.chunk=40", "image_size=[192,256]"),
    ],
)
def test_the_last_line_of_an_import_names_a_training_that_runs(
    call: Call, tmp_path: Path, kind: str, chosen: str, note: str
) -> None:
    write_ur5e(tmp_path / "ur5e.urdf")
    folder = write_set(tmp_path / "recordings")
    if kind in OTHER_SIZES:
        for file in folder.glob("*.hdf5"):
            with h5py.File(file, "a") as opened:
                del opened["observations/images_depth"], opened["observations/images/front"]
                shown = np.zeros((STEPS, *OTHER_SIZES[kind], 3), np.uint8)
                opened["observations/images/front"] = shown
    options = () if kind == "unknown arm" else (ORDER,)
    if kind == "calibrated":
        write_calibration(tmp_path / "cameras.yaml", "ur5e.urdf")
        options += ("cameras=cameras.yaml",)
    log = imported(call, folder, "my arm" if kind == "unknown arm" else "ur5e.urdf", *options)
    assert note in log
    assert chosen in run_printed(call, log)
    if kind == "calibrated":  # The second choice runs as well.
        (other,) = re.findall(r"instead of keyposes: stringline-train (.*)", log)
        places = [one for one in shlex.split(other) if not one.startswith("output=")]
        call(train.main, *places, *QUICK, "output=places")
    for policy in ("store_policy", "places") if kind == "calibrated" else ():
        check_errors_on_recordings(call, tmp_path, policy)


def check_errors_on_recordings(call: Call, folder: Path, policy: str) -> None:
    """The errors on the recordings are those of the kind of policy, and the page draws plans."""
    call(
        evaluate_recordings.main,
        f"checkpoint={policy}/checkpoint",
        "dataset=store",
        f"output={policy}",
    )
    found = json.loads((folder / policy / "offline.json").read_text())
    page = (folder / policy / "offline.html").read_text()
    assert found["episodes"] == EpisodeStore.open(folder / "store").names()
    assert "does not tell whether it was trained on them" in found["chosen"]
    metrics = set(found["metrics"])
    if policy == "places":
        kinds = {
            f"{name}{plan}" for name in ("joints_mrad", "grippers_mm") for plan in ("", "_hold")
        }
        assert {name.partition("/")[0] for name in metrics} == kinds
        assert "no other episodes are in the store" in found["linear"]
        assert page.count("<polyline") >= 8
    else:
        assert metrics == {"close_mm", "close_90_mm", "keypose_deg", "right_arm"}
        assert page.count("<circle") >= 8
    assert ", front, 0.0 s" in page
