"""The layout that the import name, the wheel and other people's packages rest on."""

import ast
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PORTIONS = ("datasets", "encoders", "policies", "sim", "real_robot")
LINKED = (*PORTIONS, "configs")
LARGEST_TEST_FILE = 100_000

# Written in pieces, so that this file does not hold what it looks for.
NOT_OURS_TO_NAME = re.compile(
    "|".join(
        (
            "/home" + r"/\w",
            "/root" + "/",
            "/Users" + "/",
            "pypi" + r"\.org",
            "pythonhosted" + r"\.org",
        )
    )
)


def tracked() -> list[Path]:
    """Returns the files that a clone or an sdist holds, links left out."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\n")
    names = [ROOT / name for name in listed if name] or [
        path for path in ROOT.rglob("*") if ".venv" not in path.parts
    ]
    return [path for path in names if path.is_file() and not path.is_symlink()]


@pytest.mark.parametrize("folder", LINKED)
def test_each_folder_has_its_relative_link(folder: str) -> None:
    link = ROOT / ".src/stringline" / folder
    assert link.is_symlink()
    assert link.readlink() == Path("../..") / folder
    assert link.resolve() == ROOT / folder


def test_nothing_else_is_linked() -> None:
    assert {path.name for path in (ROOT / ".src/stringline").iterdir() if path.is_symlink()} == set(
        LINKED
    )


@pytest.mark.parametrize("folder", PORTIONS)
def test_a_top_folder_is_no_package_by_itself(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists(), (
        "with it, `python` started in the root would import the folder"
    )


@pytest.mark.parametrize("folder", PORTIONS)
def test_each_folder_below_is_a_package_without_re_exports(folder: str) -> None:
    holders = {path.parent for path in (ROOT / folder).rglob("*.py")} - {ROOT / folder}
    for holder in holders:
        body = ast.parse((holder / "__init__.py").read_text()).body
        assert [type(statement) for statement in body] == [ast.Expr], (
            f"{holder}/__init__.py should be a docstring"
        )


@pytest.mark.slow
def test_hugging_face_datasets_is_not_hidden_by_our_folder() -> None:
    code = (
        "import datasets, stringline.datasets.contract.contract; "
        "print(datasets.load_dataset.__module__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": ".src"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "datasets.load"


IMPORTS = """
import os
import sys
import torch  # Slow to load, and independent of `datasets`: loaded once, before both forks.

for packages in ([sys.argv[1]], []):
    if child := os.fork():
        if os.waitpid(child, 0)[1]:
            sys.exit(f"With {packages} on the path something could not be imported.")
        continue
    sys.path += packages
    import datasets
    import accelerate
    import stringline.encoders.pretrained.initial_weights as operators
    operators.declare_torchvision_operators()  # So that it imports, which the next two need.
    import timm
    from diffusers.schedulers.scheduling_ddim import DDIMScheduler
    own = datasets.__spec__.origin is None
    names = timm.__name__, DDIMScheduler.__name__
    print(hasattr(datasets, "load_dataset"), own, *names, flush=True)
    os._exit(0)
"""


@pytest.mark.slow
def test_other_libraries_import_in_the_root_with_and_without_hugging_face_datasets(
    tmp_path: Path,
) -> None:
    theirs, others = tmp_path / "theirs", tmp_path / "others"
    theirs.mkdir()
    others.mkdir()
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for path in Path(place).iterdir():
            folder = theirs if re.match(r"datasets($|-)", path.name) else others
            (folder / path.name).symlink_to(path)
    # -S: no other packages than those on the path, and no hooks of theirs.
    command = [sys.executable, "-S", "-c", IMPORTS, str(theirs)]
    environment = {"PYTHONPATH": os.pathsep.join((str(ROOT / ".src"), str(others)))}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # Without Hugging Face's package the name finds our folder, which is no package of its own and
    # claims to be nothing.
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows == [
        [str(installed), str(not installed), "timm", "DDIMScheduler"] for installed in (True, False)
    ]


def test_the_lack_of_a_screen_is_no_news() -> None:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("DISPLAY", "MUJOCO_GL")
    }
    command = [
        sys.executable,
        "-c",
        "import stringline.datasets.contract.contract, dm_control.mjcf",
    ]
    done = subprocess.run(
        command,
        env=environment | {"PYTHONPATH": ".src"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


@pytest.mark.slow
def test_the_wheel_holds_stringline_and_its_plugin_of_hydra(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    others = {name for name in names if not re.search(r"^stringline/|\.dist-info/", name)}
    assert others == {"hydra_plugins/stringline_options.py"}
    for folder in LINKED:
        for path in (ROOT / folder).rglob("*.py"):
            assert f"stringline/{path.relative_to(ROOT)}" in names


def test_no_test_file_is_large() -> None:
    large = [
        path
        for path in tracked()
        if ROOT / "tests" in path.parents and path.stat().st_size > LARGEST_TEST_FILE
    ]
    assert large == []


def test_no_file_names_a_registry_or_somebodys_home() -> None:
    texts = [
        path
        for path in tracked()
        if path.suffix not in (".jpg", ".safetensors", ".png", ".webp", ".mp4", ".zip")
    ]
    found = [
        f"{path}: {match[0]}"
        for path in texts
        if (match := NOT_OURS_TO_NAME.search(path.read_text(encoding="utf-8")))
    ]
    assert found == []


@pytest.mark.slow
def test_what_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = project["dependencies"] + [
        line
        for extra, lines in project["optional-dependencies"].items()
        if extra != "dev"
        for line in lines
    ]
    declared = {re.split(r"[\[<>=; ]", line)[0].lower().replace("_", "-") for line in required}
    owners = packages_distributions()
    for name, path in sorted(third_party_imports().items()):
        distributions = {owner.lower().replace("_", "-") for owner in owners.get(name, [name])}
        assert distributions & declared, (
            f"{path.relative_to(ROOT)} imports {name}: pyproject.toml should require "
            f"{distributions}"
        )


def third_party_imports() -> dict[str, Path]:
    """Returns the third-party packages that the package imports, each with a file."""
    found: dict[str, Path] = {}
    for path in (path for folder in PORTIONS for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found |= {module.split(".")[0]: path for module in modules}
    return {
        name: path
        for name, path in found.items()
        if name not in sys.stdlib_module_names | {"stringline"}
    }
