"""The help text: choices with descriptions, and options with comments, within the width."""

from pathlib import Path

import pytest

from stringline.datasets.command.application import help_text
from stringline.datasets.command.configuration import Configuration

CONFIGS = Path(__file__).parents[3] / "configs"


def lines_of(command: str, *overrides: str) -> list[str]:
    """Returns the help text of a command as lines."""
    return help_text(Configuration(CONFIGS, command, f"stringline-{command}"), overrides).split(
        "\n"
    )


def test_a_group_has_its_chosen_name_in_brackets_and_its_description(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = lines_of("serve", "execution=stop_and_go")
    first = next(number for number, line in enumerate(lines) if line.startswith("  execution "))
    assert lines[first].endswith(
        "real_time_chunking, receding_horizon, [stop_and_go], temporal_ensembling"
    )
    assert lines[first + 1].strip().startswith("A plan is requested when the previous one")


def test_several_names_of_a_group_are_all_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    text = "\n".join(lines_of("collect", "shift=[side_light,dim_light]"))
    for part in ("[dim_light]", "[side_light]", "Light from a random side", "Less light, at full"):
        assert part in text
    assert "side_light: 1.0                         # Strength, 0 to 1." in text


@pytest.mark.parametrize("width", [80, 120])
def test_only_examples_and_values_are_wider_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = lines_of("deploy", "robot=kuka", "calibration=kuka_clouds")
    examples = [line for line in lines if line.startswith("  stringline-")]
    assert not [line for line in lines if len(line) > width and line not in examples]
    assert "      transport: null" in "\n".join(lines)


@pytest.mark.slow
def test_a_comment_beside_its_option_continues_below_its_first_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = lines_of("train", "dataset.path=x")
    number = next(place for place, line in enumerate(lines) if line.startswith("    held_out: 16 "))
    assert lines[number : number + 3] == [
        "    held_out: 16                  # Last episodes of each store for the aim",
        "                                  # probe, at most a fifth; or its validation",
        "                                  # split.",
    ]
    described = "      cameras: null" + 13 * " " + "  # Names of the cameras to read, such as"
    assert described in lines


@pytest.mark.slow
def test_the_notation_is_explained_where_it_occurs() -> None:
    replay = "\n".join(lines_of("replay"))
    assert replay.startswith("stringline-replay [key=value ...]\n\nRepeats a recorded episode")
    assert "`???` needs a value." in replay
    assert "Choices" not in replay
    for part in ("_target_", "${", "block.key=value"):
        assert part not in replay
        assert part in "\n".join(lines_of("train"))
    assert "_partial_" not in "\n".join(lines_of("train"))


def test_the_configuration_is_composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    original = Configuration._with_hydra

    def counted(self: Configuration, read: object) -> object:
        calls.append(self.name)
        return original(self, read)  # type: ignore[arg-type]

    monkeypatch.setattr(Configuration, "_with_hydra", counted)
    lines_of("train")
    # Once for the values, once for the list of files; each takes a quarter of the whole time.
    assert len(calls) <= 2
