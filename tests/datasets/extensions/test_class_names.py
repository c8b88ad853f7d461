"""Names of classes are checked before anything is imported; only classes of a base are returned."""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest

from stringline.datasets.extensions.class_names import ClassName, check_package, import_class


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
