"""YAML is read as by PyYAML, and files that stand for too much are refused at once."""

import os
import time
from pathlib import Path

import pytest
import yaml

import stringline
from stringline.datasets.files import limits
from stringline.datasets.files.limits import parse_yaml, read_yaml

LEVELS = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 9))
BOMB = f"format: 1\nl0: &l0 [a, b, c]\n{LEVELS}model: *l8\n"
MERGES = "a0: &a0 {k: v}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB, "more than 1000000 entries; allowed: fewer"),
        (MERGES, "more than 1000000 entries; allowed: fewer"),
        ("a: &a [1, *a]", "an alias contains itself"),
        ("[" * 101, "it is nested more than 100 levels deep"),
        ("- " * 100_000, "it is nested more than 100 levels deep"),
    ],
    ids=["alias bomb", "merge bomb", "cycle", "depth", "depth of blocks"],
)
def test_texts_that_stand_for_too_much_are_refused_within_a_second(
    tmp_path: Path, text: str, reason: str
) -> None:
    (file := tmp_path / "file.yaml").write_text(text)
    start = time.process_time()
    with pytest.raises(ValueError, match=rf"^The file .*file\.yaml is not valid YAML: .*{reason}"):
        read_yaml("The file", file)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    ("text", "key", "lines"),
    [
        ("a: 1\nb: 2\na: 3", "a", "1 and 3"),
        ("x: {a: 1, 'a': 2}", "a", "1 and 1"),
        ("- y:\n    k: 1\n    k: 1", "k", "2 and 3"),
        ("a: &a {b: 1, b: 2}\nc: *a", "b", "1 and 1"),
        ("1: a\n1: b", "1", "1 and 2"),
    ],
)
def test_a_key_that_is_given_twice_is_refused(
    tmp_path: Path, text: str, key: str, lines: str
) -> None:
    (file := tmp_path / "limits.yaml").write_text(text)
    with pytest.raises(
        ValueError, match=rf"limits\.yaml is .*: the key '{key}' is given twice, in lines {lines};"
    ):
        read_yaml("The limits file", file)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: &a {b: 1, c: 2}\nd: {<<: *a, b: 3}",
        "[" * 100 + "]" * 100,
        "a: &a {b: [1, 2]}\nc: *a\nd: {<<: *a, e: 1.5}",
        "- 2001-01-01\n- !!set {x, y}\n",
    ],
)
def test_other_texts_are_read_as_by_pyyaml(text: str) -> None:
    assert parse_yaml(text) == yaml.safe_load(text)


def test_the_files_of_this_package_are_read_as_by_pyyaml() -> None:
    folder = Path(stringline.__file__).parent
    shipped = folder / "policies" / "checkpoints" / "hand_over_banana" / "checkpoint.yaml"
    for file in (shipped, *sorted((folder / "configs" / "robot").glob("*.yaml"))):
        assert parse_yaml(file.read_text()) == yaml.safe_load(file.read_text())


def test_a_text_of_very_many_entries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_WRITTEN", 1000)
    assert len(parse_yaml(f"[{'1,' * 990}]")) == 990
    with pytest.raises(yaml.YAMLError, match="it has more than 1000 entries; allowed: fewer"):
        parse_yaml(f"[{'1,' * 1001}]")


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "huge.yaml").touch()
    os.truncate(tmp_path / "huge.yaml", 2**40)
    with pytest.raises(ValueError, match=r"huge.yaml has more than the allowed 4194304 bytes\."):
        read_yaml("The limits file", tmp_path / "huge.yaml")


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ValueError, match=r"The limits file .*pipe\.yaml is not a file"):
        read_yaml("The limits file", tmp_path / "pipe.yaml")
