"""Targets of the Makefile bring in Debian's packages as root; otherwise one line says how."""

import os
import subprocess
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
OLDEST_PYTHON = "3.11.2"  # That of Debian 12.
PACKAGES = {
    "egl": "libegl1 libgl1 libgles2 libgl1-mesa-dri",
    "venv": "python3-venv",
    "browser": "chromium chromium-driver",
    "ip": "iproute2",
}


def make(
    target: str, *variables: str, found: str = "false", rules: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs make, also where make runs the tests; `rules` are read after the Makefile."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", "-f", "Makefile", "-f", "-", target, f"FIND_{target.upper()}={found}", *variables],
        cwd=ROOT,
        env=environment,
        input=rules,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("target", PACKAGES)
def test_a_user_reads_one_command(target: str) -> None:
    ended = make(target, "APT=echo", "USER_ID=1000")
    assert ended.returncode == 2
    output = ended.stderr.splitlines()[0]
    assert f"sudo apt-get install -y --no-install-recommends {PACKAGES[target]} " in output
    assert f"make SYSTEM=no {target}" in output
    assert ended.stdout == ""


@pytest.mark.parametrize("target", PACKAGES)
def test_root_installs(target: str) -> None:
    ended = make(target, "APT=echo", "USER_ID=0")
    assert ended.returncode == 0, ended.stderr
    assert f"Installing {PACKAGES[target]} ..." in ended.stdout


@pytest.mark.parametrize("target", PACKAGES)
def test_other_systems_read_the_names_of_the_packages(target: str) -> None:
    ended = make(target, "APT=no-such-program")
    assert ended.returncode == 2
    assert PACKAGES[target] in ended.stderr.splitlines()[0]
    assert make(target, "APT=no-such-program", "SYSTEM=no").returncode == 0


def test_what_is_there_is_not_installed() -> None:
    ended = make("egl", "APT=no-such-program", found="true")
    assert (ended.returncode, ended.stdout) == (0, "")


def test_constraints_admit_the_python_of_debian() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    installed = [each for each in distributions() if pinned.get(each.name) == each.version]
    assert len(installed) > len(pinned) / 2
    refused = [
        f"{each.name} {each.version} needs Python {needs}"
        for each in installed
        if (needs := each.metadata["Requires-Python"])
        and not SpecifierSet(needs).contains(OLDEST_PYTHON)
    ]
    assert refused == []


def test_progress_of_an_installation_is_short_and_a_conflict_is_shown(tmp_path: Path) -> None:
    conflict = "The conflict is caused by:\n    one 1 depends on two>=3\n    two==2\n"
    log = tmp_path / "pip.log"
    log.write_text("".join(f"Collecting package-{n}\n" for n in range(60)) + conflict)
    ended = make("shown", rules=f"shown:\n\t@cat {log} | $(SHOWN)\n")
    shown = [f"  Collecting package-{n}\n" for n in (19, 39, 59)]
    assert ended.stdout == "".join(shown) + conflict
