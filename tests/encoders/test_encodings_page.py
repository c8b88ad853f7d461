"""The snippet of docs/encodings.md runs and has the described effect."""

import re
from pathlib import Path

import torch

PAGE = Path(__file__).parents[2] / "docs" / "encodings.md"


def snippets() -> list[str]:
    """Returns the Python of the page."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_every_snippet_runs() -> None:
    assert len(snippets()) == 3
    for code in snippets():
        exec(code, {})


def test_the_snippet_is_invariant_to_a_common_shift() -> None:
    (snippet,) = [code for code in snippets() if "encoding.rotate_inverse" in code]
    shifted = snippet.replace("torch.rand(2, 10, 3)", "torch.rand(2, 10, 3) + 0.5")
    moved_apart = snippet.replace("torch.rand(2, 10, 3)", "torch.rand(2, 10, 3) * 1.1")
    assert len({snippet, shifted, moved_apart}) == 3
    outputs = []
    for code in (snippet, shifted, moved_apart):
        torch.manual_seed(0)
        names: dict[str, torch.Tensor] = {}
        exec(code, names)
        outputs.append(names["y"])
    assert outputs[0].shape == (2, 4, 10, 32)
    torch.testing.assert_close(outputs[1], outputs[0], rtol=0, atol=1e-3)
    assert (outputs[2] - outputs[0]).abs().max() > 0.05
