"""A package runs its code only after the user's consent, which a file keeps."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from tests.datasets.extensions.conftest import WriteModule

from stringline.datasets.extensions.class_names import ClassName
from stringline.datasets.extensions.trust import (
    Trust,
    UntrustedPackageError,
    remember,
    remembered,
    trust_file,
)


def test_a_package_without_consent_is_not_imported(
    write_module: WriteModule, own_trust: Path
) -> None:
    mark = write_module("marked.inner.policies", "class Mine(dict): pass")
    with pytest.raises(UntrustedPackageError) as caught:
        Trust("The checkpoint runs/x").load("marked.inner.policies:Mine", dict)
    words = str(caught.value)
    assert "\n" not in words
    for part in ("The checkpoint runs/x", "'marked'", "on this machine", "trust=marked"):
        assert part in words
    assert str(own_trust) in words
    assert not mark.exists()
    found = Trust(packages=frozenset({"marked"})).load("marked.inner.policies:Mine", dict)
    assert found.__name__ == "Mine"
    assert mark.exists()


@pytest.mark.parametrize("trusted", ["a", "a_b", "ab_", "A", "ab.c", "*", ""])
def test_consent_is_to_one_package_only(trusted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRINGLINE_TRUST", trusted)
    for name in ("ab:C", "ab.a:C"):
        with pytest.raises(UntrustedPackageError, match="package 'ab', which is not trusted"):
            Trust(packages=frozenset({trusted})).check(ClassName.parse(name))


def test_the_consent_is_kept_for_later_processes(
    write_module: WriteModule, own_trust: Path
) -> None:
    for name in ("first", "second"):
        mark = write_module(name, "class Mine(dict): pass")
    assert remembered() == ()
    remember(["second"])
    remember(["first", "second"])
    assert not mark.exists()
    assert own_trust == trust_file()
    assert yaml.safe_load(own_trust.read_text()) == ["second", "first"]
    Trust().check(ClassName.parse("first.module:Mine"))
    code = (
        "from stringline.datasets.extensions.trust import Trust\n"
        "print(Trust().load('first:Mine', dict))"
    )
    path = os.pathsep.join((str(mark.parent / "path"), *sys.path))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "first.Mine" in done.stdout


def test_consents_at_the_same_time_are_all_kept(write_module: WriteModule) -> None:
    names = [f"package_{number}" for number in range(12)]
    for name in names:
        write_module(name, "")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: remember([name]), names))
    assert sorted(remembered()) == sorted(names)


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("not_installed", "no module 'not_installed' on Python's path"),
        ("os", "'os' is part of Python"),
        ("stringline", "need no trust"),
        ("a.b", "'a.b' is not the name of a package"),
        ("a-b", "'a-b' is not the name of a package"),
        ("*", "is not the name of a package"),
    ],
)
def test_a_wrong_name_is_not_kept(package: str, message: str, own_trust: Path) -> None:
    with pytest.raises(ValueError, match=message):
        remember([package])
    assert not own_trust.exists()


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_file_has_the_permissions_of_the_umask(
    mask: int, write_module: WriteModule, own_trust: Path
) -> None:
    write_module("mine", "")
    before = os.umask(mask)
    try:
        remember(["mine"])
    finally:
        os.umask(before)
    assert own_trust.stat().st_mode & 0o777 == 0o644 & ~mask


@pytest.mark.parametrize("text", ["a: [", "mine: true", "[1, 2]", "mine", "\x00", "[[mine]]"])
def test_a_damaged_file_is_reported(text: str, own_trust: Path) -> None:
    own_trust.parent.mkdir(parents=True)
    own_trust.write_text(text)
    with pytest.raises(ValueError, match=r"list of trusted packages .*trusted.yaml is .*"):
        Trust().check(ClassName.parse("mine:Mine"))


def test_an_empty_file_contains_no_package(own_trust: Path) -> None:
    own_trust.parent.mkdir(parents=True)
    own_trust.write_text("")
    assert remembered() == ()


def check_mine() -> None:
    Trust().check(ClassName.parse("mine:Mine"))


@pytest.mark.parametrize("mode", [0o020, 0o002])
@pytest.mark.parametrize("above", [0, 1, 2, 3])
def test_a_list_that_others_can_change_or_replace_has_no_effect(
    above: int, mode: int, own_trust: Path
) -> None:
    """As for OpenSSH: the file and all folders above it."""
    own_trust.parent.mkdir(parents=True)
    own_trust.write_text("- mine")
    check_mine()
    place = [own_trust, *own_trust.parents][above]
    place.chmod(place.stat().st_mode | mode)
    with pytest.raises(ValueError, match=rf"has no effect, because .* can change {place}\. .*go-w"):
        check_mine()
    place.chmod(place.stat().st_mode & ~mode)
    check_mine()


def test_a_list_behind_a_link_is_checked_where_it_is(own_trust: Path, tmp_path: Path) -> None:
    own_trust.parent.mkdir(parents=True)
    (elsewhere := tmp_path / "open").mkdir()
    (elsewhere / "list.yaml").write_text("- mine")
    own_trust.symlink_to(elsewhere / "list.yaml")
    check_mine()
    elsewhere.chmod(0o777)
    with pytest.raises(ValueError, match=rf"other users can change {elsewhere}"):
        check_mine()


def test_the_folder_of_the_list_is_made_for_its_user_alone(
    write_module: WriteModule, own_trust: Path
) -> None:
    write_module("mine", "")
    before = os.umask(0)
    try:
        remember(["mine"])
    finally:
        os.umask(before)
    assert own_trust.parent.stat().st_mode & 0o777 == 0o700
    check_mine()
