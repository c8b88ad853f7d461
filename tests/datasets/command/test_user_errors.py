"""Errors of a user are told from those of the program by what raised them."""

from collections.abc import Callable
from pathlib import Path

import pytest

import stringline
from stringline.datasets.command.user_errors import raised_here
from stringline.datasets.formats.checks import blamed_on_data
from stringline.datasets.formats.foreign import ForeignDataError


def failing(source: str, file: Path) -> Callable[[], None]:
    """Returns the function `fail` of a module, as if it had been imported from `file`."""
    names = {"ForeignDataError": ForeignDataError}
    exec(compile(f"def fail():\n    {source}\n", file, "exec"), names)
    found: Callable[[], None] = names["fail"]  # type: ignore[assignment]
    return found


@pytest.mark.parametrize(
    ("source", "folder", "ours"),
    [
        ("raise ValueError('x')", Path(stringline.__file__).parent, True),
        ("raise ValueError('x') from None", Path(stringline.__file__).parent, True),
        ("int('x')", Path(stringline.__file__).parent, False),
        ("raise ValueError('x')", Path("/elsewhere"), False),
    ],
)
def test_a_raise_of_this_package_is_known_without_its_source(
    source: str, folder: Path, ours: bool
) -> None:
    """The file does not exist; while tests ran, edits of the source changed messages once."""
    with pytest.raises(ValueError, match="x") as caught:
        failing(source, folder / "gone.py")()
    assert raised_here(caught.value) == ours


def test_messages_about_data_do_not_depend_on_the_source() -> None:
    fail = failing(
        "raise ForeignDataError('It is damaged.')", Path(stringline.__file__).parent / "gone.py"
    )
    with pytest.raises(ForeignDataError, match=r"^It is damaged\.$"), blamed_on_data():
        fail()
