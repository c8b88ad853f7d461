"""Names of classes are checked before anything is imported; only classes of a base are returned.

A package runs its code only after the user's consent, which a file keeps.
"""

import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from tests.datasets.extensions.conftest import WriteModule

from stringline.datasets.extensions.trust import (
    ClassName,
    Trust,
    UntrustedPackageError,
    check_package,
    import_class,
    remember,
    remembered,
    trust_file,
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("os:system", "'os' is part of Python"),
        ("os.path:join", "'os' is part of Python"),
        ("subprocess:Popen", "'subprocess' is part of Python"),
        ("builtins:eval", "'builtins' is part of Python"),
        ("stringline:DiffusionPolicy", r"named stringline.NAME, without a colon"),
        ("stringline.sim.train:run", r"named stringline.NAME, without a colon"),
        ("stringline.x:__builtins__", "is not the name of a class"),
        ("__main__:Policy", "is not the name of a class"),
        ("mine:__class__", "is not the name of a class"),
        ("mine:Policy.__init__", "is not the name of a class"),
        ("mine:a:B", "is not the name of a class"),
        ("mine:", "is not the name of a class"),
        (":Policy", "is not the name of a class"),
        (".mine:Policy", "is not the name of a class"),
        ("../mine:Policy", "is not the name of a class"),
        ("mine:Policy()", "is not the name of a class"),
        ("m\u0456ne:Policy", "is not the name of a class"),
    ],
)
def test_other_texts_are_rejected(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClassName.parse(text)


def test_the_package_is_the_first_part() -> None:
    name = ClassName.parse("my_package.policies.mine:Policy")
    assert name.package == "my_package"
    assert name.module == "my_package.policies.mine"
    assert name.name == "Policy"
    assert str(name) == "my_package.policies.mine:Policy"
    with pytest.raises(ValueError, match=r"'my_package.policies' is not the name of a package"):
        check_package("my_package.policies")


CONTENT = """
from collections import OrderedDict
class Derived(dict): pass
class Plain: pass
def make(): return Derived()
made = Derived()
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("make", "own_classes:make is not a class derived from dict"),
        ("made", "own_classes:made is not a class derived from dict"),
        ("Plain", "own_classes:Plain is not a class derived from dict"),
        ("OrderedDict", "is defined in collections; allowed: classes of 'own_classes' itself"),
        ("Dervied", "no policy in own_classes 'Dervied'. Did you mean 'Derived'"),
    ],
)
def test_only_own_classes_of_the_base_are_returned(
    write_module: Callable[[str, str], Path], name: str, message: str
) -> None:
    assert issubclass(OrderedDict, dict)
    write_module("own_classes", CONTENT)
    assert import_class(ClassName.parse("own_classes:Derived"), dict).__name__ == "Derived"
    with pytest.raises(ValueError, match=message):
        import_class(ClassName.parse(f"own_classes:{name}"), dict, "policy")


def test_missing_modules_are_named(write_module: Callable[[str, str], Path]) -> None:
    write_module("in_need", "import a_missing_library")
    write_module("in_package.module", "class A: pass")
    for name, message in {
        "not_installed.module:A": r"no module 'not_installed.module' on .* PYTHONPATH=. before",
        "in_package.modul:A": "no module 'in_package.modul' on",
        "in_need:A": "in_need cannot be imported, .* not installed: a_missing_library",
    }.items():
        with pytest.raises(ValueError, match=message):
            import_class(ClassName.parse(name))


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
