"""The public names: each exists, none is loaded before its use, and page and stub list them all."""

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import stringline

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    """The script that writes the page and the stub."""
    specification = spec_from_file_location("write_api", ROOT / "docs" / "write_api.py")
    assert specification is not None
    assert specification.loader is not None
    module = module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(stringline.HOME))
def test_a_public_name_is_what_its_module_defines(name: str) -> None:
    found = getattr(stringline, name)
    if isinstance(found, type):
        assert found.__module__ == stringline.HOME[name]
        assert found.__doc__


def test_importing_the_package_loads_no_library() -> None:
    code = (
        "import sys, stringline; print(sorted({'torch', 'numpy', 'mujoco', 'zarr'} & "
        "set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT / ".src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_names_are_unique_and_listed() -> None:
    names = [
        name
        for modules in stringline.PUBLIC.values()
        for group in modules.values()
        for name in group
    ]
    assert len(names) == len(set(names))
    assert set(stringline.__all__) == set(names) <= set(dir(stringline))


def test_another_name_is_refused() -> None:
    with pytest.raises(AttributeError, match=r"no public name 'Cayley'; docs/api.md"):
        getattr(stringline, "Cayley")  # noqa: B009  Type checkers know that it is not there.


def test_page_and_stub_are_up_to_date(writer: ModuleType) -> None:
    assert writer.PAGE.read_text() == writer.page(), "run: python docs/write_api.py"
    assert writer.STUB.read_text() == writer.stub(), "run: python docs/write_api.py"


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: str(file.relative_to(ROOT)))
def test_yaml_files_name_public_classes(file: Path) -> None:
    def targets(node: object) -> list[str]:
        if isinstance(node, dict):
            inner = [target for value in node.values() for target in targets(value)]
            return inner + ([node["_target_"]] if "_target_" in node else [])
        return (
            [target for value in node for target in targets(value)]
            if isinstance(node, list)
            else []
        )

    for target in targets(yaml.safe_load(file.read_text())):
        package, _, name = target.rpartition(".")
        assert package == "stringline"
        assert name in stringline.HOME
