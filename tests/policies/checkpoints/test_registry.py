"""The index of checkpoints: complete, true, and listed for an unknown name."""

import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from stringline.encoders.training.checkpoint import FILES, load_description, sha256_of
from stringline.policies.checkpoints.load import (
    PACKAGE,
    SHIPPED,
    RegisteredCheckpoint,
    read_index,
    registered_checkpoint,
)
from stringline.policies.serve import main
from stringline.sim.statistics.intervals import Rate
from stringline.sim.tasks.task_registry import TASKS

ROOT = Path(__file__).parents[3]
ENTRIES = list(read_index(SHIPPED).values())
SHA256 = ENTRIES[0].sha256


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an index of three checkpoints, which have results but no files."""
    entry = yaml.safe_load((SHIPPED / "index.yaml").read_text())["hand_over_banana"]
    (tmp_path / "index.yaml").write_text(
        yaml.safe_dump(
            {
                "hand_over_banana": entry,
                "kuka_pick": {**entry, "robot": "iiwa14", "tasks": ["kuka_pick"]},
                "in_a_folder": {**entry, "where": str(tmp_path / "large")},
            }
        )
    )
    return tmp_path


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    """The script that writes the page."""
    specification = spec_from_file_location(
        "write_checkpoints", ROOT / "docs" / "write_checkpoints.py"
    )
    assert specification is not None
    assert specification.loader is not None
    module = module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_is_true(entry: RegisteredCheckpoint) -> None:
    assert entry.result == str(Rate(entry.successes, entry.episodes))
    assert set(entry.tasks) <= set(TASKS)
    assert (ROOT / entry.video).is_file()
    assert entry.training.startswith("stringline-")
    assert f"checkpoint={entry.name}" in entry.evaluation.split()
    if entry.where == PACKAGE:
        place = SHIPPED / entry.name
        assert sum((place / name).stat().st_size for name in FILES) == entry.size_bytes
        assert sha256_of(place) == entry.sha256
        assert load_description(place)["contract"]["embodiment"] == entry.robot


def test_every_shipped_folder_is_in_the_index() -> None:
    there = {file.parent.name for file in SHIPPED.glob("*/checkpoint.yaml")}
    assert there == {entry.name for entry in ENTRIES if entry.where == PACKAGE}


def test_the_page_is_up_to_date(writer: ModuleType) -> None:
    assert writer.PAGE.read_text() == writer.page(), "run: python docs/write_checkpoints.py"


def test_an_unknown_name_lists_all_with_task_and_result_and_the_nearest_first(
    folder: Path,
) -> None:
    with pytest.raises(ValueError, match="There is no") as caught:
        registered_checkpoint("kuka_pik", folder)
    first, *lines = str(caught.value).splitlines()
    assert first == (
        "There is no checkpoint folder or shipped checkpoint 'kuka_pik'. Did you mean 'kuka_pick'? "
        "Allowed: a folder or"
    )
    assert lines[0] == "  kuka_pick: iiwa14, kuka_pick, 47/50 = 94 % [84, 98]"
    assert "  hand_over_banana: aloha, hand_over_banana, 47/50 = 94 % [84, 98]" in lines
    assert len(lines) == 3


def test_a_command_prints_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["stringline-serve", "checkpoint=banana"])
    with pytest.raises(SystemExit) as caught:
        main()
    lines = capsys.readouterr().err.splitlines()
    assert caught.value.code == 2
    assert lines[0].startswith("stringline-serve: There is no checkpoint folder or shipped")
    assert lines[1:] == [f"  {entry}" for entry in ENTRIES]


def test_a_checkpoint_in_a_folder_is_verified(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"in_a_folder should be in .*large, which is not"):
        registered_checkpoint("in_a_folder", folder)
    shutil.copytree(SHIPPED / "hand_over_banana", folder / "large")
    assert registered_checkpoint("in_a_folder", folder) == folder / "large"
    with (folder / "large" / "weights.safetensors").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(ValueError, match=rf"has the SHA-256 .* but {SHA256} was expected"):
        registered_checkpoint("in_a_folder", folder)


def test_a_folder_and_a_name_may_have_a_digest() -> None:
    banana = SHIPPED / "hand_over_banana"
    for place in (str(banana), "hand_over_banana"):
        assert registered_checkpoint(f"{place}@sha256:{SHA256.upper()}", SHIPPED) == banana
        with pytest.raises(ValueError, match=f"has the SHA-256 {SHA256}, but 0000"):
            registered_checkpoint(f"{place}@sha256:{'0' * 64}", SHIPPED)
        with pytest.raises(ValueError, match="is '08f0'; allowed: 64 hexadecimal digits"):
            registered_checkpoint(f"{place}@sha256:08f0", SHIPPED)


@pytest.mark.parametrize("text", ["a: 3\n", "a: {robot: aloha}\n", "a: [\n"])
def test_an_incomplete_index_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"The entry a of index\.yaml has|is not valid YAML"):
        read_index(tmp_path)
