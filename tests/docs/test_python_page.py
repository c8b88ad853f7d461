"""The code blocks of docs/python.md run as one program, with smaller numbers."""

from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import ROOT, blocks

SMALLER = {
    '"time_limit_s": 20.0': '"time_limit_s": 0.6',
    "time_limit_s=20.0": "time_limit_s=0.6",
    "1_000_010": "1_000_001",
    "range(10)": "range(2)",
    "workers=2": "workers=1",
}


@pytest.mark.slow
def test_the_page_is_a_program(folder: Path) -> None:
    page = ROOT / "docs" / "python.md"
    code = "\n".join(block.text for block in blocks(page) if block.language == "python")
    for large, small in SMALLER.items():
        assert large in code
        code = code.replace(large, small)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, "docs/python.md", "exec"), names)
    assert len(names["results"]) == 1
    assert len(names["store"]) == 2
    assert names["conditioning"].tokens.shape == (2, 1, 32)
