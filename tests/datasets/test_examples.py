"""Each example in the help texts of `stringline-data` and in the pages about it runs."""

import importlib
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import yaml
from tests.datasets.embodiments.robot_files import HOME, UR5E_JOINTS, write_ur5e
from tests.datasets.formats import droid_recordings, mcap_recordings
from tests.datasets.formats.conftest import Arrays, aloha_episode, joint_series, smooth_image
from tests.datasets.formats.replay_buffers import LENGTHS, replay_buffer
from tests.datasets.formats.small_sets import rlds
from tests.datasets.formats.test_libero import recorded as libero_file
from tests.datasets.formats.test_robomimic import recorded
from tests.datasets.images.small_image_sets import write_example_sets
from tests.datasets.loading.grasp_recordings import grasp_store

import stringline
from stringline import ActHdf5Writer, Contract, EpisodeAttributes, EpisodeStore, LeRobotWriter
from stringline.datasets.command.configuration import Configuration
from stringline.datasets.contract.contract import ActionDimension
from stringline.datasets.data import TASKS, main

ROOT = Path(__file__).parents[2]
PAGES = ("data.md", "formats.md", "images.md", "troubleshooting.md")
CONFIGS = Path(stringline.__file__).parent / "configs"
HELP = re.compile(r"^ *(stringline-data \w+ .*)$", re.MULTILINE)
INLINE = re.compile(r"`(stringline-data \w+ [^`]*=[^`]*)`")
INDENTED = re.compile(r"^ {4}(stringline-data \w+ .*=.*)$", re.MULTILINE)
PLACEHOLDER = re.compile(r"=[A-Z_]+\b")
# The examples of a verb begin with the results of another one.
NEEDED = {"expand": "archive", "calibrate": "import"}
# Examples of these formats import one data set with different cameras into one store.
RECORDINGS = {"format=mcap", "format=rlds"}
SLOW = {"depth": pytest.mark.stress}  # Loads transformers.


def examples(verb: str) -> list[list[str]]:
    """Returns the words of the examples of a verb, in their order."""
    texts = HELP.findall(Configuration(CONFIGS, f"data/{verb}", "stringline-data").introduction())
    for page in PAGES:
        text = (ROOT / "docs" / page).read_text()
        texts += [" ".join(found.split()) for found in INLINE.findall(text)]
        texts += INDENTED.findall(text)
    chosen = [shlex.split(text, comments=True) for text in texts if not PLACEHOLDER.search(text)]
    unique = {" ".join(words): words for words in chosen if words[1] == verb}
    return list(unique.values())


def write_store(path: Path, steps: Mapping[int, int]) -> EpisodeStore:
    """Writes episodes of ALOHA with 5 steps per second, given their lengths by seed."""
    store = EpisodeStore.create(path)
    for seed, length in steps.items():
        arrays, attributes = aloha_episode(length, seed)
        slow: Arrays = {key: array * 10 for key, array in arrays.items() if key.startswith("time")}
        contract = replace(attributes.contract, control_hz=5.0)
        labelled = replace(attributes, contract=contract, task="hand_over_banana", success=True)
        store.write(arrays | slow, labelled)
    return store


def write_large(path: Path) -> None:
    """Writes an episode of two steps with images of 128 pixels."""
    arrays, attributes = aloha_episode(2)
    cameras = [replace(each, height=128, width=128) for each in attributes.contract.cameras]
    large: Arrays = {f"rgb/{each.name}": np.zeros((2, 128, 128, 3), np.uint8) for each in cameras}
    contract = attributes.contract.with_cameras(*cameras)
    EpisodeStore.create(path).write(arrays | large, replace(attributes, contract=contract))


def write_lerobot(path: Path, names: tuple[str, ...], first: tuple[float, ...]) -> None:
    """Writes a LeRobotDataset of an arm with a gripper, from a first pose on."""
    action = tuple(ActionDimension(name, "arm", "joint") for name in names)
    contract = Contract(path.name, "base", 50.0, (), names, (), action)
    ways = np.random.default_rng(0).uniform(0, 1, (5, len(names)))
    numbers = (np.array(first) + ways).astype(np.float32)
    store = EpisodeStore.create(path.with_name(f"{path.name}_store"))
    arrays = {"time": np.arange(5) / 50, "joints/position": numbers, "action": numbers}
    store.write(arrays, EpisodeAttributes(contract, "lift", 0))
    LeRobotWriter(images="image").write(store, path)


def write_rgbd(store: EpisodeStore, path: Path) -> None:
    """Writes ACT's HDF5 with depth in millimetres, and beside it the calibration of its cameras."""
    ActHdf5Writer(state_gripper="opening", action_gripper="opening").write(store, path)
    sizes: dict[str, list[int]] = {}
    for file in path.iterdir():
        with h5py.File(file, "r+") as opened:
            for camera, images in opened["observations/images"].items():
                sizes[camera] = list(images.shape[1:3])
                depth = np.full(images.shape[:3], 900, np.uint16)
                opened[f"observations/images_depth/{camera}"] = depth
    cameras = {
        camera: {
            "parent": "world",
            "T_parent_camera": np.eye(4).tolist(),
            "size": size,
            "intrinsics": [20.0, 20.0, size[1] / 2, size[0] / 2],
        }
        for camera, size in sizes.items()
    }
    calibration = {"version": 1, "embodiment": "aloha", "cameras": cameras}
    path.with_name("cameras.yaml").write_text(yaml.safe_dump(calibration))
    calibration["cameras"] = {"overhead": cameras["overhead"]}
    path.with_name("overhead.yaml").write_text(yaml.safe_dump(calibration))


def write_recordings(root: Path) -> None:
    """Writes a bag of an arm with two joints and base `base_link`, RLDS of ALOHA, and DROID."""
    (root / "bags").mkdir()
    entries = mcap_recordings.ros2_entries(0.2)
    for *_, fields in entries:
        for key in fields.keys() & {"name", "position", "data"}:
            fields[key] = fields[key][:2] if isinstance(fields[key], list) else fields[key]
    still = mcap_recordings.transform(0, "base_link", "base", (0, 0, 0), (0, 0, 0, 1))
    fixed = ("/tf_static", "tf2_msgs/msg/TFMessage", 0.0, {"transforms": [still]})
    mcap_recordings.write_ros2(root / "bags/take_0.mcap", [*entries, fixed])
    rlds(root).rename(root / "play")
    droid_recordings.droid(root).rename(root / "droid")
    (root / "droid" / "1.0.0").rename(root / "droid" / "1.0.1")
    droid_recordings.annotations(root / "droid_annotations")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stores and data sets that the examples name."""
    root = tmp_path_factory.mktemp("prepared")
    bananas = write_store(root / "runs/bananas", {5: 10, 6: 10, 7: 50, 8: 10, 9: 10})
    for seed, name in enumerate(("act", "monday", "tuesday")):
        write_store(root / "runs" / name, {seed: 2})
    grasp_store(root / "runs/grasps", (0.02, -0.02))
    write_large(root / "recordings/bananas")
    for name, gripper in (("aloha_sim", "opening"), ("real", "aloha1_follower_share")):
        ActHdf5Writer(state_gripper="opening", action_gripper=gripper).write(bananas, root / name)
    write_lerobot(root / "so100", ("shoulder", "gripper"), (0.0, 0.0))
    write_lerobot(root / "ur5e", (*UR5E_JOINTS, "gripper"), (*HOME, 0.0))
    write_ur5e(root / "ur5e.urdf")
    arm = {"tcp": "tool0", "gripper": {"name": "gripper"}}
    robot = {"name": "lab", "model": "ur5e.urdf", "arms": {"arm": arm}}
    (root / "my_arm.yaml").write_text(yaml.safe_dump(robot))
    write_rgbd(bananas, root / "rgbd")
    rng = np.random.default_rng(0)
    steps = sum(LENGTHS)
    hand: Arrays = {
        "camera0_rgb": np.stack([smooth_image(frame) for frame in range(steps)]),
        "robot0_eef_pos": rng.normal(size=(steps, 3)),
        "robot0_eef_rot_axis_angle": rng.normal(size=(steps, 3)),
        "robot0_gripper_width": rng.uniform(0, 0.08, (steps, 1)),
    }
    replay_buffer(root / "cup.zarr.zip", hand)
    samples = SimpleNamespace(image=smooth_image, joints=joint_series)
    recorded(samples, root / "low_dim.hdf5")
    write_recordings(root)
    write_example_sets(root)
    (root / "libero_90").mkdir()
    libero_file(samples, root / "libero_90" / "drawer.hdf5")
    return root


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `prepared`, the working directory."""
    found = shutil.copytree(prepared, tmp_path / "work")
    monkeypatch.chdir(found)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return found


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs an example; the object storage is in memory."""
    local = [word.replace("s3://", "memory://") for word in words]
    monkeypatch.setattr(sys, "argv", local)
    main()


def test_every_verb_has_an_example() -> None:
    assert [verb for verb in TASKS if not examples(verb)] == []


@pytest.mark.slow
@pytest.mark.parametrize("verb", [pytest.param(verb, marks=SLOW.get(verb, ())) for verb in TASKS])
def test_the_examples_of_a_verb_run(
    verb: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if verb == "depth":
        models = importlib.import_module("tests.encoders.pretrained.test_monocular_depth")
        models.save_model(folder / "models/my_depth", "metric")
    if verb == "embodiment":
        (folder / "my_arm.yaml").unlink()  # It is written.
    for words in [*(examples(NEEDED[verb]) if verb in NEEDED else []), *examples(verb)]:
        try:
            run([adapted(word, words[1]) for word in words], monkeypatch)
        except SystemExit as ended:
            pytest.fail(f"{shlex.join(words)}: exit {ended.code}: {capsys.readouterr().err}")
        start_again(words, folder)


def adapted(word: str, verb: str) -> str:
    """Returns a word of an example for a machine without network and GPU."""
    if verb == "depth" and word.startswith("model="):
        return "model=models/my_depth"
    word = word.replace("=/usr/share", "=usr/share")
    return word.replace("[top]", "[overhead]").replace("=cuda", "=cpu")


def start_again(words: list[str], folder: Path) -> None:
    """Removes what the next example creates anew."""
    for option, _, value in (word.partition("=") for word in words):
        again = [
            ("export", "path"),
            ("depth", "output"),
            ("images", "store"),
        ]
        if (words[1], option) in [*again, *(("import", "store") for _ in RECORDINGS & {*words})]:
            found = folder / value
            shutil.rmtree(found) if found.is_dir() else found.unlink()
