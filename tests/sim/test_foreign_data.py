"""A user's own dataset is imported, trained on and evaluated by the commands alone."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import av
import h5py
import numpy as np
import pytest
from tests.sim.in_process import InProcess

from stringline import ALOHA, LocalCluster
from stringline.datasets import data
from stringline.sim import evaluate, train

SMALL = (
    "policy.dim=32",
    "policy.chunk=24",
    "policy.depth=1",
    "policy.observation_encoder.dim=32",
    "policy.observation_encoder.depth=1",
    "trainer.steps=2",
    "trainer.batch_size=4",
)


@pytest.fixture
def stringline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., str]]:
    """Calls a command within this process, in a folder of its own, and returns its output."""
    monkeypatch.chdir(tmp_path)
    worlds = InProcess()
    monkeypatch.setattr(LocalCluster, "open", worlds.open)

    def call(main: Callable[[], None], *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["stringline-it", *arguments])
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        output = capsys.readouterr().err
        assert code == 0, output
        return output

    yield call
    worlds.close()


CONVENTIONS = ("layout.state_gripper", "layout.action_gripper")
RATE = "format.control_hz=50"
GRIPPERS = tuple(f"{name}=opening" for name in CONVENTIONS)
CAMERAS = ("overhead", "wrist_left", "wrist_right")


def write_act_data(
    folder: Path, lengths: Sequence[int], cameras: Sequence[str], size: tuple[int, int]
) -> Path:
    """Writes episodes as ACT's recorder does: cameras without depth or poses."""
    for episode, steps in enumerate(lengths):
        rng = np.random.default_rng(episode)
        joints = np.asarray(ALOHA.home + rng.uniform(-0.2, 0.2, (steps, 14)), np.float32)
        joints[:, [6, 13]] = rng.uniform(0, 1, (steps, 2))
        with h5py.File(folder / f"episode_{episode}.hdf5", "w") as file:
            file.attrs["sim"] = True
            file["action"] = joints
            file["observations/qpos"], file["observations/qvel"] = joints, np.zeros_like(joints)
            for camera in cameras:
                shown = rng.integers(0, 256, (steps, *size, 3), dtype=np.uint8)
                file[f"observations/images/{camera}"] = shown
    return folder


@pytest.fixture(scope="module")
def act_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_act_data(tmp_path_factory.mktemp("act"), (60, 75), CAMERAS, (128, 128))


@pytest.mark.slow
def test_an_act_set_and_a_lerobot_set_are_trained_on_and_evaluated(
    act_data: Path, tmp_path: Path, stringline: Callable[..., str]
) -> None:
    stringline(
        data.main,
        "import",
        "format=act_hdf5",
        RATE,
        f"path={act_data}",
        f"store={tmp_path / 'act'}",
        *GRIPPERS,
    )
    stringline(
        data.main,
        "export",
        f"store={tmp_path / 'act'}",
        f"path={tmp_path / 'lerobot_v3'}",
        "target.images=image",
    )
    information = json.loads((tmp_path / "lerobot_v3/meta/info.json").read_text())
    assert information["codebase_version"] == "v3.0"
    assert information["total_episodes"] == 2
    source = f"path={tmp_path / 'lerobot_v3'}"
    stringline(
        data.main, "import", "format=lerobot", source, f"store={tmp_path / 'lerobot'}", *GRIPPERS
    )
    for name in ("act", "lerobot"):
        stringline(
            train.main,
            f"dataset.path={tmp_path / name}",
            "coordinates=grid",
            *SMALL,
            f"output={tmp_path / name}_run",
        )
        output = stringline(
            evaluate.main,
            f"checkpoint={tmp_path / name}_run/checkpoint",
            "task=hand_over_banana",
            f"output={tmp_path / name}_evaluation",
            "seeds=1",
            "workers=1",
            "videos=false",
            "task.time_limit_s=2",
        )
        assert "/1 = " in output, output
        assert (tmp_path / f"{name}_evaluation/report.html").is_file()


@pytest.mark.slow
def test_images_of_84x84_are_trained_on_at_a_multiple_of_the_patch(
    tmp_path: Path, stringline: Callable[..., str]
) -> None:
    """The error of a training on them names the options of the import, which then suffice."""
    written = write_act_data(tmp_path, (25, 25), CAMERAS[:1], (84, 84))
    source = ("import", "format=act_hdf5", RATE, f"path={written}", *GRIPPERS)
    stringline(data.main, *source, f"store={tmp_path / 'raw'}")
    training = (train.main, "coordinates=grid", *SMALL, f"output={tmp_path / 'run'}")
    with pytest.raises(AssertionError) as caught:
        stringline(*training, f"dataset.path={tmp_path / 'raw'}")
    output = str(caught.value)
    assert "Camera 'overhead' has 84x84 pixels; allowed: multiples of 16" in output
    (advised,) = re.findall(r"image_size=\[80,80\] image_fit=crop", output)
    stringline(data.main, *source, *advised.split(), f"store={tmp_path / 'crop'}")
    copied = re.findall(r"stringline-data (cache) .* (height=80) (width=80)", output)[0]
    stringline(data.main, *copied, f"store={tmp_path / 'raw'}", f"output={tmp_path / 'copy'}")
    for name in ("crop", "copy"):
        stringline(*training, f"dataset.path={tmp_path / name}", f"output={tmp_path / name}_run")
        assert (tmp_path / f"{name}_run" / "checkpoint").is_dir()


@pytest.mark.slow
def test_a_policy_of_480x640_images_runs_in_gym_aloha(
    tmp_path: Path, stringline: Callable[..., str]
) -> None:
    """The images of an evaluation have the rows and columns of the data."""
    written = write_act_data(tmp_path, (25, 25), ("overhead",), (480, 640))
    store = tmp_path / "store"
    source = f"path={written}"
    robot = ("layout.embodiment=gym_aloha", *(f"{name}=gym_aloha" for name in CONVENTIONS))
    stringline(data.main, "import", "format=act_hdf5", RATE, source, f"store={store}", *robot)
    run = tmp_path / "run"
    stringline(train.main, f"dataset.path={store}", "coordinates=grid", *SMALL, f"output={run}")
    output = stringline(
        evaluate.main,
        f"checkpoint={run}/checkpoint",
        "task=gym_aloha_transfer_cube",
        f"output={tmp_path / 'evaluation'}",
        "seeds=1",
        "workers=1",
        "task.time_limit_s=0.5",
    )
    assert "/1 = " in output, output
    (video,) = (tmp_path / "evaluation" / "videos").glob("*.mp4")
    with av.open(video) as container:
        (frame, *_) = container.decode(video=0)
    assert (frame.height, frame.width % 640) == (480, 0)
