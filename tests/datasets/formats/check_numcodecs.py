"""Hostile zarr sets with old versions of numcodecs, whose codec `pickle` runs what it decodes.

Run by `make interop`; the arguments are folders that `pip install --target FOLDER --no-deps
numcodecs==VERSION` has filled. Each version is first shown to run code.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from interop import ROOT, expect

FORMATS = "tests/datasets/formats"
TESTS = (
    f"{FORMATS}/test_zarr_arrays.py",
    f"{FORMATS}/test_diffusion_policy.py",
    f"{FORMATS}/test_umi.py",
    f"{FORMATS}/test_hostile.py",
    "tests/datasets/editing/test_untrusted_archive.py",
)
# Of the corpus, the sets that zarr is part of.
CHOSEN = "not test_hostile or zarr or zip or umi or corpus"
UNPICKLED = """
import numcodecs, pickle
class Code:
    def __reduce__(self):
        return print, ("the code ran",)
numcodecs.get_codec({"id": "pickle"}).decode(pickle.dumps(Code()))
print(numcodecs.__version__, numcodecs.__file__)
"""


def main() -> None:
    """Runs the tests with each version."""
    for folder in map(Path, sys.argv[1:]):
        environment = {**os.environ, "PYTHONPATH": f"{folder.absolute()}:{ROOT / '.src'}"}
        output = python(["-c", UNPICKLED], environment)
        version, place = output.stdout.splitlines()[-1].split(" ", 1)
        expect(Path(place).is_relative_to(folder.absolute()), f"numcodecs {version} is imported")
        expect("the code ran" in output.stdout, f"numcodecs {version} runs pickled code by itself")
        run = python(["-m", "pytest", "-q", *TESTS, "-k", CHOSEN], environment)
        last = (run.stdout.splitlines() or [run.stderr])[-1]
        if run.returncode:
            sys.stderr.write(run.stdout)
        expect(run.returncode == 0, f"hostile and valid sets with numcodecs {version}: {last}")


def python(words: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    main()
