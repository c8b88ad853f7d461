"""`stringline-data import` and `export` from the command line: output and exit status."""

from pathlib import Path

import pytest
from tests.datasets.conftest import DataCommand

from stringline.datasets.store.store import EpisodeStore

OPENINGS = ["layout.state_gripper=opening", "layout.action_gripper=opening"]


@pytest.fixture
def act(tmp_path: Path, original: EpisodeStore, data_command: DataCommand) -> Path:
    """A data set of ACT, exported."""
    target = ["target=act_hdf5", "target.state_gripper=opening", "target.action_gripper=opening"]
    status, out, _ = data_command(
        "export", *target, f"store={original.path}", f"path={tmp_path / 'act'}"
    )
    assert (status, out) == (0, f"2 episodes exported to {tmp_path / 'act'}.\n")
    return tmp_path / "act"


@pytest.mark.slow
@pytest.mark.parametrize("target", ["lerobot", "diffusion_policy"])
def test_each_format_can_be_chosen(
    tmp_path: Path, original: EpisodeStore, data_command: DataCommand, target: str
) -> None:
    arguments = ["target.images=image"] if target == "lerobot" else []
    status, out, _ = data_command(
        "export",
        f"target={target}",
        f"store={original.path}",
        f"path={tmp_path / 'set'}",
        *arguments,
    )
    assert status == 0
    assert out.startswith(f"2 episodes exported to {tmp_path / 'set'}.\nLeft out of the data:\n")
    assert "\n  T_base_gripper  2 of 2 episodes: no place in the format\n" in out
    rate = ["format.control_hz=50"] if target == "diffusion_policy" else []
    arguments = [
        f"format={target}",
        f"path={tmp_path / 'set'}",
        f"store={tmp_path / 'back'}",
        *OPENINGS,
        *rate,
    ]
    status, out, error = data_command("import", *arguments)
    assert (status, out) == (0, f"2 episodes imported, 0 were in {tmp_path / 'back'} already.\n")
    assert f"To see an episode: stringline-view store={tmp_path / 'back'}\n" in error
    assert " Next: stringline-" in error.splitlines()[-1]


@pytest.mark.slow
def test_an_import_lists_omitted_episodes_and_exits_with_2(
    tmp_path: Path, act: Path, data_command: DataCommand
) -> None:
    good = (act / "episode_1.hdf5").read_bytes()
    (act / "episode_1.hdf5").write_bytes(good[:-100])
    arguments = [
        "import",
        f"path={act}",
        f"store={tmp_path / 'back'}",
        "task_name=stack",
        *OPENINGS,
    ]
    status, out, error = data_command(*arguments)
    assert status == 2
    assert out.startswith("1 episodes imported, 0 were in ")
    assert "Left out: episode 1 (episode_1.hdf5): episode_1.hdf5 cannot be read as HDF5" in out
    assert f"1 of 2 episodes were left out; the others are in {tmp_path / 'back'}." in error
    (act / "episode_1.hdf5").write_bytes(good)
    status, out, _ = data_command(*arguments)
    assert (status, out) == (0, f"1 episodes imported, 1 were in {tmp_path / 'back'} already.\n")
    assert {
        episode.attributes.task for episode in EpisodeStore.open(tmp_path / "back").episodes()
    } == {"stack"}


@pytest.mark.slow
def test_an_import_without_a_readable_episode_says_so(
    tmp_path: Path, act: Path, data_command: DataCommand
) -> None:
    for file in act.iterdir():
        file.write_bytes(file.read_bytes()[:-100])
    store = tmp_path / "back"
    status, out, error = data_command("import", f"path={act}", f"store={store}", *OPENINGS)
    assert (status, out.count("Left out: ")) == (2, 1)
    assert "2 episodes, episode 0 (episode_0.hdf5), episode 1 (episode_1.hdf5): the first: " in out
    assert f"2 of 2 episodes were left out; {store} has none of them." in error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["path={act}"], "layout.state_gripper is missing, and the data does not contain it."),
        (["path={act}", "format=act"], "There is no format 'act'. Did you mean 'act_hdf5'"),
        (["path={act}", "layout=kuka"], "There is no layout 'kuka'."),
        (["path=nowhere", *OPENINGS], "There is no data set at nowhere."),
        (["path={act}", "format=lerobot", *OPENINGS], "is not a LeRobotDataset"),
        (["path={act}", "format=robomimic"], "format.action_gripper is missing"),
        (["path={act}", "format=umi"], "format.gripper_open_m=NUMBER"),
    ],
)
def test_a_mistake_is_answered_in_one_line(
    tmp_path: Path, act: Path, data_command: DataCommand, arguments: list[str], message: str
) -> None:
    status, _, error = data_command(
        "import", f"store={tmp_path / 'back'}", *(text.format(act=act) for text in arguments)
    )
    assert status == 2
    assert message in error
    assert error.count("\n") == 1
    assert len(EpisodeStore.create(tmp_path / "back")) == 0


@pytest.mark.slow
def test_a_missing_library_is_named(
    tmp_path: Path, act: Path, data_command: DataCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "h5py.py").write_text("raise ModuleNotFoundError('h5py')")
    monkeypatch.syspath_prepend(tmp_path / "without")  # Also in the process of the import.
    status, _, error = data_command(
        "import", f"path={act}", f"store={tmp_path / 'back'}", *OPENINGS
    )
    assert status == 2
    assert (
        'This needs h5py, which is not installed. Run: pip install "stringline[formats]"' in error
    )


def test_an_import_beyond_the_limit_of_the_disk_does_not_start(
    tmp_path: Path, act: Path, data_command: DataCommand
) -> None:
    words = ["import", f"path={act}", f"store={tmp_path / 'back'}", *OPENINGS]
    status, _, error = data_command(*words, "disk_gib=1e-6")
    assert status == 2
    assert "image_size=[ROWS,COLUMNS]" in error
    assert data_command(*words, "disk_gib=0")[0] == 2


def test_the_default_layout_names_the_one_of_other_robots(
    tmp_path: Path, act: Path, data_command: DataCommand
) -> None:
    words = ["import", "format=lerobot", f"path={act}", f"store={tmp_path / 'back'}"]
    status, _, error = data_command(*words)
    assert status == 2
    assert "layout=aloha, the default, is for the two ViperX arms of ALOHA; another rob" in error
    assert "layout=named" in error
