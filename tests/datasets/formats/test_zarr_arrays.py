"""No array of a foreign zarr set reaches zarr's codecs by name, of which `pickle` runs code."""

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numcodecs
import numcodecs.pickles
import pytest
from tests.datasets.formats.conftest import Import
from tests.datasets.formats.hostile_corpus import canary_of
from tests.datasets.formats.hostile_zarr import OBJECTS, code, described
from tests.datasets.formats.small_sets import EPISODES, READERS, diffusion_policy, umi

PICKLE = {"id": "pickle", "protocol": 5}
OLD_OBJECTS = {**OBJECTS, "filters": [PICKLE], "fill_value": 0}
STATES = {"diffusion_policy": "data/action", "umi": "data/robot0_eef_pos"}


class DecodedError(BaseException):
    """A codec by name, or pickle, was used; not an `Exception`, which readers turn into words."""


def refuse(*_: object, **__: object) -> NoReturn:
    raise DecodedError


@pytest.fixture(autouse=True)
def old_numcodecs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes numcodecs unpickle, as its older versions always do."""
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Returns a function after which no test may look up a codec by its name, or unpickle."""

    def begin() -> None:
        monkeypatch.setattr(numcodecs, "get_codec", refuse)
        monkeypatch.setattr(numcodecs.registry, "get_codec", refuse)
        monkeypatch.setattr(numcodecs.pickles.Pickle, "decode", refuse)
        for name in ("load", "loads", "Unpickler"):
            monkeypatch.setattr(pickle, name, refuse)

    return begin


def unpacked(name: str, folder: Path) -> Path:
    """Writes a valid set of a format as a folder."""
    if name == "diffusion_policy":
        return diffusion_policy(folder)
    packed = umi(folder)
    root = folder / "cup.zarr"
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(root)
    return root


def with_code(root: Path, array: str, folder: Path, **changes: Any) -> None:
    """Changes the description of an array, whose chunks then have pickled code."""
    target = described(root, array, **changes)
    for chunk in target.glob("[0-9]*"):
        chunk.write_bytes(code(folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sets").mkdir()
    return tmp_path / "sets"


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize(
    "damage",
    [
        ("meta/episode_ends", OLD_OBJECTS, "its type is '|O'; allowed: booleans, integers and flo"),
        (None, OLD_OBJECTS, "robot0_eef_pos|There is no series 'action'"),
        (None, {"filters": [PICKLE]}, r"it has filters, \[\{'id': 'pickle', .*allowed: none"),
        (None, {"compressor": PICKLE}, "There is no codec 'pickle'"),
        (None, {"compressor": {"id": "json2"}}, "There is no codec 'json2'"),
    ],
)
def test_pickled_arrays_are_refused_unread(
    folder: Path,
    imported: Import,
    watch: Callable[[], None],
    name: str,
    damage: tuple[str | None, dict[str, Any], str],
) -> None:
    array, changes, says = damage
    root = unpacked(name, folder)
    with_code(root, array or STATES[name], folder, **changes)
    watch()
    with pytest.raises(ValueError, match=says):
        imported(READERS[name], root)
    assert not canary_of(folder).exists()


@pytest.mark.parametrize("name", STATES)
def test_a_further_series_of_objects_is_left_out_unread(
    folder: Path, imported: Import, watch: Callable[[], None], name: str
) -> None:
    root = unpacked(name, folder)
    notes = root / "data/notes"
    notes.mkdir()
    plain = {"zarr_format": 2, "shape": [17], "chunks": [17], "order": "C", **OLD_OBJECTS}
    (notes / ".zarray").write_text(json.dumps(plain))
    (notes / "0").write_bytes(code(folder))
    watch()
    outcome = imported(READERS[name], root)[1]
    assert (len(outcome.imported), outcome.refused) == (EPISODES, {})
    assert outcome.skipped_fields == {("notes", "no numbers"): EPISODES}
    assert not canary_of(folder).exists()


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("codec", [numcodecs.Blosc("zstd"), numcodecs.LZ4(), numcodecs.Zstd(1)])
def test_numbers_are_read_without_codecs_by_name(
    folder: Path, imported: Import, watch: Callable[[], None], name: str, codec: Any
) -> None:
    codecs = {"img" if name == "diffusion_policy" else "camera0_rgb": codec}
    path = (diffusion_policy if name == "diffusion_policy" else umi)(folder, codecs)
    watch()
    assert len(imported(READERS[name], path)[1].imported) == EPISODES


def test_the_codec_would_run_the_code(folder: Path, watch: Callable[[], None]) -> None:
    """So the sets above are dangerous to a reader that takes codecs by name, and it is noticed."""
    numcodecs.get_codec(PICKLE).decode(code(folder))
    assert canary_of(folder).exists()
    watch()
    for use in (lambda: numcodecs.get_codec(PICKLE), lambda: pickle.loads(code(folder))):
        with pytest.raises(DecodedError):
            use()
