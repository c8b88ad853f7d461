"""The files and commands of docs/tutorials/own-policy.md, with smaller numbers."""

from pathlib import Path

import pytest
import yaml
from tests.docs.pages import commands, free_port, run, run_apart, start, wait_for_port, write_files
from tests.policies.demonstrations import make_store

PAGE = "tutorials/own-policy.md"


def test_the_policy_is_trained_and_evaluated_once_it_is_trusted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(PAGE, folder)
    _, train, evaluate = commands(PAGE)[:3]
    make_store(folder / "runs/demonstrations")  # Faster than the expert, whose command comes first.
    run(train)
    description = yaml.safe_load((folder / "runs/train/checkpoint/checkpoint.yaml").read_text())
    assert description["model"]["_target_"] == "my_policy:QueryPolicy"
    assert description["model"]["queries"] == 8
    assert evaluate.endswith(" trust=my_policy")
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        run(evaluate.removesuffix(" trust=my_policy"))
    assert "add trust=my_policy to the command once" in capsys.readouterr().err
    assert not (folder / "runs/eval/report.html").exists()
    run(evaluate)
    assert (folder / "runs/eval/report.html").exists()
    assert (folder.parent / "config/stringline/trusted.yaml").read_text() == "- my_policy\n"


@pytest.mark.stress
def test_every_command_of_the_page_runs_in_a_process_of_its_own(folder: Path) -> None:
    write_files(PAGE, folder)
    port = free_port()
    server = None
    try:
        for line in commands(PAGE):
            if "stringline-serve" in line:
                server = start(line.replace("8765", str(port)), folder)
                wait_for_port(port, server)
            else:
                run_apart(line.replace("8765", str(port)), folder)
    finally:
        if server is not None:
            server.terminate()
            server.communicate(timeout=30)
    few = yaml.safe_load((folder / "runs/few/checkpoint/checkpoint.yaml").read_text())
    assert few["model"]["queries"] == 4
    for result in ("runs/eval/report.html", "runs/eval_remote/report.html", "runs/deployments"):
        assert (folder / result).exists()
