"""The policy of docs/tutorials/own-policy.md is trained, and evaluated once it is trusted."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.docs.pages import ROOT, Reader, blocks, commands
from tests.docs.test_tutorials import SMALLER
from tests.policies.demonstrations import make_store

PAGE = ROOT / "docs" / "tutorials" / "own-policy.md"


@pytest.mark.slow
def test_the_policy_is_trained_and_evaluated_once_it_is_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The episodes of the small store are shorter than a chunk.
    shorter = (*SMALLER["stringline-train"][:4], "dataset.pad_last_action_s=1")
    small = {**SMALLER, "stringline-train": shorter}
    reader = Reader(folder, monkeypatch, small)
    files = [block for block in blocks(PAGE) if block.title]
    programs = [block for block in blocks(PAGE) if block.language == "sh"]
    _, train, evaluate = commands(programs[0])[:3]
    # The store below names another task than that of the page.
    evaluate = replace(
        evaluate, words=(*evaluate.words[:1], "task=hand_over_banana", *evaluate.words[1:])
    )
    for block in files:
        reader.write(block)
    make_store(folder / "runs/demonstrations")  # Faster than the expert, whose command comes first.
    reader.execute(train)
    description = yaml.safe_load((folder / "runs/train/checkpoint/checkpoint.yaml").read_text())
    assert description["model"]["_target_"] == "my_policy:QueryPolicy"
    assert description["model"]["queries"] == 8
    assert evaluate.words[-1] == "trust=my_policy"
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        reader.execute(replace(evaluate, words=evaluate.words[:-1]))
    assert "add trust=my_policy to the command once" in capsys.readouterr().err
    assert not (folder / "runs/eval/report.html").exists()
    reader.execute(evaluate)
    assert (folder / "runs/eval/report.html").exists()
    assert (folder.parent / "config/stringline/trusted.yaml").read_text() == "- my_policy\n"
