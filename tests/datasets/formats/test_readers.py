"""What holds for the reader of each format, on small data sets of each form of it."""

import errno
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.datasets.formats.conftest import Import
from tests.datasets.formats.replay_buffers import LENGTHS, replay_buffer
from tests.datasets.formats.small_sets import EPISODES, MAKERS, READERS, VARIANTS, WRITERS, act

from stringline.datasets.formats import importing
from stringline.datasets.formats.act_hdf5 import ActHdf5Reader
from stringline.datasets.formats.diffusion_policy import DiffusionPolicyReader
from stringline.datasets.formats.foreign import Reader
from stringline.datasets.formats.vector_layout import NamedLayout
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore

CAMERAS = {
    "act_hdf5": "top",
    "robomimic": "top",
    "diffusion_policy": "img",
    "umi": "camera0_rgb",
    "lerobot": "cam_high",
    "libero": "agentview",
    "mcap": "/front/image_raw",
    "rlds": "observation/image",
}
"""The name of a camera in the small data set of each format."""


@pytest.mark.parametrize("name", VARIANTS)
def test_each_episode_is_imported_once(tmp_path: Path, imported: Import, name: str) -> None:
    of, write = VARIANTS[name]
    path = write(tmp_path)
    store, outcome = imported(READERS[of], path)
    assert (len(outcome.imported), outcome.present, outcome.refused) == (EPISODES, 0, {})
    assert not any(store.verify(episode) for episode in store.names())
    images = [next(key for key in e.arrays if key.startswith("rgb/")) for e in store.episodes()]
    shown = zip(store.episodes(), images, strict=True)
    assert len(Windows(store)) == sum(len(episode.arrays[key]) for episode, key in shown)
    assert len({episode.attributes.contract for episode in store.episodes()}) == 1
    store, outcome = imported(READERS[of], path)
    assert (len(outcome.imported), outcome.present, len(store)) == (0, EPISODES, EPISODES)


@pytest.mark.parametrize("name", VARIANTS)
def test_hidden_files_of_macos_are_skipped(tmp_path: Path, imported: Import, name: str) -> None:
    of, write = VARIANTS[name]
    path = write(tmp_path)
    path = path.parent if of == "libero" else path
    for file in [each for each in path.rglob("*") if each.is_file()]:
        file.with_name(f"._{file.name}").write_bytes(b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X")
    _, outcome = imported(READERS[of], path)
    assert (len(outcome.imported), outcome.refused) == (EPISODES, {})


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_an_import_that_ends_early_keeps_complete_episodes(
    tmp_path: Path,
    imported: Import,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    error: BaseException,
) -> None:
    path, copy, copied = WRITERS[name](tmp_path), importing._copy, list[int]()

    def second_fails(*arguments: Any, **options: Any) -> None:
        copied.append(1)
        copy(*arguments, **options)
        if len(copied) == 2:
            raise error

    monkeypatch.setattr(importing, "_copy", second_fails)
    with pytest.raises(type(error)):
        imported(READERS[name], path)
    store = EpisodeStore.open(tmp_path / "imported")
    assert (len(store), store.leftovers()) == (1, [])
    monkeypatch.undo()
    store, outcome = imported(READERS[name], path)
    assert (len(outcome.imported), outcome.present, len(store)) == (EPISODES - 1, 1, EPISODES)


def answers(imported: Import, reader: Reader, path: Path) -> list[str]:
    """Returns the refusals of all episodes, or the error of the data set."""
    try:
        outcome = imported(reader, path)[1]
    except ValueError as error:
        return [str(error)]
    assert (outcome.imported, outcome.present) == ((), 0)
    return list(outcome.refused.values())


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_data_set_of_the_format_is_refused_in_one_line(
    tmp_path: Path, imported: Import, name: str
) -> None:
    empty, text = tmp_path / "empty", tmp_path / "notes.txt"
    empty.mkdir()
    text.write_text("no data")
    for path in (empty, text):
        (message,) = answers(imported, READERS[name], path)
        assert message.isprintable(), message
        assert path.name in message


@pytest.mark.parametrize("name", READERS)
def test_cameras_are_renamed_left_out_and_their_names_checked(
    tmp_path: Path, imported: Import, name: str
) -> None:
    path, camera = WRITERS[name](tmp_path), CAMERAS[name]
    store, outcome = imported(MAKERS[name](cameras={camera: "eye"}), path)
    assert outcome.refused == {}
    for episode in store.episodes():
        assert [seen.name for seen in episode.attributes.contract.cameras] == ["eye"]
        assert [key for key in episode.arrays if key.startswith("rgb/")] == ["rgb/eye"]
    store.path.rename(tmp_path / "first")
    if name == "robomimic":  # The small data set has no joints.
        (message,) = answers(imported, MAKERS[name](cameras={}), path)
        assert message == "A contract needs at least one camera or a joint state."
    else:
        store, outcome = imported(MAKERS[name](cameras={}), path)
        assert outcome.refused == {}
        assert {episode.attributes.contract.cameras for episode in store.episodes()} == {()}
        store.path.rename(tmp_path / "second")
    for message in answers(imported, MAKERS[name](cameras={f"{camera}x": "eye"}), path):
        assert re.search(f"'{camera}x'. Did you mean .*{camera}", message), message


def single_of_act(folder: Path) -> Path:
    path = act(folder)
    for file in path.glob("*.hdf5"):
        with h5py.File(file, "r+") as opened:
            for key in ("action", "observations/qpos"):
                del opened[key]
                opened[key] = np.arange(5) / 10
    return path


def single_of_a_replay_buffer(folder: Path) -> Path:
    numbers = np.arange(sum(LENGTHS)) / 100
    return replay_buffer(folder / "set.zarr", {"state": numbers, "action": numbers})


@pytest.mark.parametrize(
    ("make", "write"),
    [
        (partial(ActHdf5Reader, control_hz=10), single_of_act),
        (partial(DiffusionPolicyReader, control_hz=10), single_of_a_replay_buffer),
    ],
)
def test_series_of_single_numbers_are_vectors_of_one(
    tmp_path: Path, imported: Import, make: Callable[..., Reader], write: Callable[[Path], Path]
) -> None:
    store, outcome = imported(make(NamedLayout({}, angle_unit="rad")), write(tmp_path))
    assert outcome.refused == {}
    for episode in store.episodes():
        for key in ("action", "joints/position"):
            assert episode.arrays[key].shape == (episode.steps, 1)
