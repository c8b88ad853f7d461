"""Pages are read and followed as described in `tests/docs/pages.py`."""

from pathlib import Path
from subprocess import CalledProcessError

import pytest
from tests.docs.pages import Block, Command, Reader, blocks, commands

PAGE = """# A page

```python title="my_words.py"
WORDS = ["ten", "words"]
```

```python
from my_words import WORDS
```

```python
from pathlib import Path
Path("found").write_text(" ".join(WORDS))
```

```text
python never_run.py
```

```sh
WORD=three python my_script.py  # a comment
cp found copied
```

```python title="my_script.py"
```

    PYTHONPATH=. stringline-eval seeds=3 \\
      workers=8
"""
SCRIPT = "import os, pathlib; pathlib.Path('word').write_text(os.environ['WORD'])"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_blocks_have_languages_titles_and_lines(page: Path) -> None:
    found = blocks(page)
    assert [(block.language, block.title, block.line) for block in found] == [
        ("python", "my_words.py", 4),
        ("python", "", 8),
        ("python", "", 12),
        ("text", "", 17),
        ("sh", "", 21),
        ("python", "my_script.py", 26),
        ("indented", "", 28),
    ]


def test_commands_have_environments_and_continuations(page: Path) -> None:
    script, copy = commands(blocks(page)[4])
    assert script == Command({"WORD": "three"}, ("python", "my_script.py"), False, 21)
    assert copy.words == ("cp", "found", "copied")
    [evaluation] = commands(blocks(page)[6])
    assert evaluation.environment == {"PYTHONPATH": "."}
    assert evaluation.words == ("stringline-eval", "seeds=3", "workers=8")
    text = "# A comment.\nstringline-serve port=0 &\n"
    assert commands(Block("sh", "", text, 1)) == [
        Command({}, ("stringline-serve", "port=0"), True, 2)
    ]


def test_a_reader_writes_runs_and_replaces(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "my_script.py").write_text(SCRIPT)
    Reader(folder, monkeypatch, {}, {'"ten"': '"two"'}).run(page)
    assert (folder / "copied").read_text() == "two words"
    assert (folder / "word").read_text() == "three"


@pytest.mark.parametrize(
    "line", ["stringline-data verfy", "python missing.py", "cp missing copied"]
)
def test_an_error_of_a_command_fails(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page.md").write_text(f"```sh\n{line}\n```\n")
    with pytest.raises((SystemExit, OSError, CalledProcessError), match=r"2|missing|non-zero"):
        Reader(tmp_path, monkeypatch, {}).run(tmp_path / "page.md")
