"""Builds the distributions and uses each from an empty environment, far from the checkout.

Run by `make check`.

The environments hold the distribution alone; the libraries that it needs are those that the tests
ran with, which a path file lends to them, so that nothing is fetched. What is checked is the
package: that it is complete, that it holds nothing else, and that it does not lean on the checkout.
"""

import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120

# Run inside the empty environment; its arguments are the data files of the package.
USE = """
import pathlib, sys
import stringline, stringline.datasets.contract.contract
package = pathlib.Path(stringline.__file__).parent
assert pathlib.Path(sys.prefix) in package.parents, package
missing = [name for name in sys.argv[1:] if not (package / name).is_file()]
assert not missing, missing
"""


def main() -> None:
    """Builds and checks; ends with an error where something is missing."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        sdist, wheel = build(ROOT, place / "dist")
        again = build(unpack(sdist, place / "unpacked"), place / "dist-again")[1]
        expect(
            contents(again) == contents(wheel),
            "a wheel made from the sdist equals one made from the checkout",
        )
        check_contents(wheel)
        for distribution in (wheel, sdist):
            use(distribution, place / f"use-{distribution.suffix[1:]}", list(scripts))
    say("The wheel and the sdist are complete and work alone.")


def say(text: str) -> None:
    """Prints a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def expect(holds: bool, what: str) -> None:
    """Ends the check where `what` does not hold."""
    if not holds:
        raise SystemExit(f"This does not hold: {what}")
    say(f"  {what}")


def build(source: Path, target: Path) -> tuple[Path, Path]:
    """Builds the sdist and the wheel of a source tree into a folder."""
    call(
        [
            sys.executable,
            "-m",
            "build",
            "--no-isolation",
            "--sdist",
            "--wheel",
            "--outdir",
            f"{target}",
            f"{source}",
        ],
        ROOT,
    )
    return next(target.glob("*.tar.gz")), next(target.glob("*.whl"))


def call(command: list[str], folder: Path) -> str:
    """Runs a program in a folder; returns what it printed, and ends the check where it fails."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def unpack(sdist: Path, target: Path) -> Path:
    """Unpacks an sdist; returns its only folder."""
    with tarfile.open(sdist) as archive:
        archive.extractall(target, filter="data")
    return next(target.iterdir())


def contents(wheel: Path) -> dict[str, int]:
    """Returns the checksum of each file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {file.filename: file.CRC for file in archive.infolist()}


def data_files() -> list[str]:
    """Returns the tracked files of the package that are not Python."""
    folders = ["configs", "datasets", "encoders", "policies", "real_robot", "sim"]
    listed = call(
        ["git", "ls-files", "--", *folders, ".src/stringline/py.typed"], ROOT
    ).splitlines()
    return sorted(
        name.removeprefix(".src/stringline/") for name in listed if not name.endswith(".py")
    )


PLUGIN = "hydra_plugins/stringline_options.py"


def check_contents(wheel: Path) -> None:
    """Checks that a wheel holds the whole package and nothing else at the top level."""
    names = {name for name in contents(wheel) if ".dist-info/" not in name}
    expect(
        all(name.startswith("stringline/") or name == PLUGIN for name in names) and PLUGIN in names,
        f"the wheel installs nothing beside stringline/ and {PLUGIN}",
    )
    missing = [name for name in data_files() if f"stringline/{name}" not in names]
    expect(not missing, f"the wheel holds every data file{f', but {missing}' if missing else ''}")


def use(distribution: Path, place: Path, scripts: list[str]) -> None:
    """Installs a distribution into an empty environment and works with it from an empty folder."""
    venv.create(place / "env", with_pip=False, symlinks=True)
    python, elsewhere = place / "env/bin/python", place / "elsewhere"
    elsewhere.mkdir()
    own = call(
        [f"{python}", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], elsewhere
    ).strip()
    Path(own, "lent.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n"
    )  # Path files in there are not read: no checkout.
    install = [
        "install",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--ignore-installed",
        f"{distribution}",
    ]
    call([sys.executable, "-m", "pip", f"--python={python}", *install], elsewhere)
    call([f"{python}", "-c", USE, *data_files()], elsewhere)
    for script in scripts:
        text = call([f"{place}/env/bin/{script}", "--help"], elsewhere)
        expect(text.startswith(script), f"{distribution.name}: {script} --help")
    expect(
        not list(elsewhere.iterdir()), f"{distribution.name}: asking for help leaves no file behind"
    )


if __name__ == "__main__":
    main()
