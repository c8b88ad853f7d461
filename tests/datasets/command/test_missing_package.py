"""A library that is not installed is named with its package and the command that installs it."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from hydra.utils import instantiate

import stringline
from stringline.datasets.command.application import run
from stringline.datasets.command.entry_points import COMMANDS, RECORDINGS
from stringline.datasets.command.installation import PACKAGES, missing_package

ROOT = Path(__file__).parents[3]
LIBUSB = "libusb-1.0.so.0: cannot open shared object file: No such file or directory"

# A command line in which imports of the packages in the first argument fail.
WITHOUT = """
import sys
class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name in packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
packages = sys.argv.pop(1).split(",")
sys.meta_path.insert(0, Refusal())
"""
Bake = Callable[..., tuple[int, str]]


@pytest.fixture
def bake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Bake:
    """Builds a class by Hydra in a command; returns its exit code and standard error.

    `stringline.Oven` and `kitchen.Oven` are in modules with the given first line.
    """
    (tmp_path / "bake.yaml").write_text("# Bakes.\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(stringline.HOME, "Oven", "kitchen")
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)

    def bake(first_line: str, target: str = "stringline.Oven") -> tuple[int, str]:
        (tmp_path / "kitchen.py").write_text(f"{first_line}\nclass Oven: pass\n")
        monkeypatch.setattr(sys, "argv", ["stringline-bake"])
        monkeypatch.delitem(sys.modules, "kitchen", raising=False)
        importlib.invalidate_caches()
        with pytest.raises(SystemExit) as caught:
            run("bake", lambda _: instantiate({"_target_": target}), folder=tmp_path)
        return int(caught.value.code or 0), capsys.readouterr().err

    return bake


def test_a_public_name_names_the_package_that_it_needs() -> None:
    code = f"{WITHOUT}\nimport stringline\nstringline.PAD_CONTACT"
    done = python(code, "dm_control")
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: stringline.PAD_CONTACT needs the package 'dm-control', which is not "
        "installed: pip install stringline"
    )


def test_a_command_names_the_package_that_a_public_name_needs(bake: Bake) -> None:
    assert bake("import kneading_machine") == (
        2,
        "stringline-bake: stringline.Oven needs the module 'kneading_machine', which is not "
        "installed\n",
    )


def test_a_library_that_cannot_be_loaded_is_one_line(bake: Bake) -> None:
    assert bake(f"raise ImportError({LIBUSB!r})") == (
        2,
        f"stringline-bake: 'stringline.Oven' cannot be imported: {LIBUSB}.\n",
    )


def test_an_import_error_of_this_package_shows_its_traceback(bake: Bake) -> None:
    for line in ("import stringline.ovens", "from stringline.datasets.files.atomic import knead"):
        code, error = bake(line)
        assert code == 1
        assert "Traceback" in error


def test_a_class_of_the_user_names_the_package_that_it_needs(bake: Bake) -> None:
    code, error = bake("import kneading_machine", "kitchen.Oven")
    assert (code, error.count("\n")) == (2, 1), error
    assert "'kitchen.Oven' cannot be imported: No module named 'kneading_machine'" in error


def test_packages_of_extras_are_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_package(ModuleNotFoundError(name="yaml")) is None, "yaml is installed"
    expected = {
        "yaml": "the package 'pyyaml', which is not installed: pip install stringline",
        "h5py": ("the package 'h5py', which is not installed: pip install \"stringline[formats]\""),
    }
    for module, answer in expected.items():
        monkeypatch.setitem(sys.modules, module, None)
        assert missing_package(ModuleNotFoundError(name=module)) == answer
    assert missing_package(ImportError("libGL.so.1: cannot open")) is None


def test_the_packages_have_these_names() -> None:
    owners = packages_distributions()
    for module, package in PACKAGES.items():
        assert package in {name.lower() for name in owners[module]}


def test_a_command_without_its_libraries_is_one_line() -> None:
    code = f"{WITHOUT}\nfrom stringline.datasets.command.entry_points import evaluate\nevaluate()"
    done = python(code, "hydra", program="stringline-eval")
    assert done.returncode == 2
    assert done.stderr == (
        "stringline-eval needs the package 'hydra-core', which is not installed: pip install "
        "stringline\n"
    )


def test_ctrl_c_during_the_imports_of_a_command_ends_quietly(tmp_path: Path) -> None:
    (tmp_path / "hydra.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    code = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nsys.argv.pop(1)\n" + (
        "from stringline.datasets.command.entry_points import view\nview()"
    )
    done = python(code, "-", program="stringline-view")
    assert (done.returncode, done.stderr) == (130, "\nStopped.\n")


def test_the_module_of_each_command_has_a_main_function() -> None:
    for module in (*COMMANDS.values(), RECORDINGS):
        file = ROOT / f"{module.removeprefix('stringline.').replace('.', '/')}.py"
        assert "\ndef main() -> None:\n" in file.read_text()


def python(code: str, *arguments: str, program: str = "-c") -> subprocess.CompletedProcess[str]:
    """Runs a program under a name."""
    named = f"import sys; sys.argv[0] = {program!r}\n{code}"
    return subprocess.run(
        [sys.executable, "-c", named, *arguments],
        env={"PYTHONPATH": str(ROOT / ".src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
