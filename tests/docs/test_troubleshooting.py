"""The messages of docs/troubleshooting.md are those of the code."""

import re

from tests.docs.pages import ROOT

FOLDERS = ("datasets", "encoders", "policies", "sim", "real_robot")
MESSAGE = re.compile(r"^\*\*`(.+)`\.?\*\*", re.MULTILINE)
# What the code fills in: dots, and words in capitals.
FILLED_IN = re.compile(r"\.\.\.|\b[A-Z]+\b")
LEAST = 12  # Letters of a part that is looked for.


def sources() -> str:
    """Returns all code, adjacent string literals joined."""
    texts = (path.read_text() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return re.sub(r'["\']\s*\n\s*f?["\']', "", "\n".join(texts))


def test_messages_exist() -> None:
    code = sources()
    messages = MESSAGE.findall((ROOT / "docs" / "troubleshooting.md").read_text())
    parts = {
        part.strip(" .'\"(),:/")
        for message in messages
        for part in FILLED_IN.split(message.replace("\n", " "))
    }
    assert len(messages) > 15
    assert sorted(part for part in parts if len(part) >= LEAST and part not in code) == []
