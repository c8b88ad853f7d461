"""Recipes are read from command lines and files; wrong ones are found before anything runs."""

import time
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from stringline.sim.experiments.recipes import (
    TrainingRecipe,
    check_command,
    names_data,
    parse_recipes,
    with_recipes,
)


@pytest.mark.parametrize(
    ("argument", "key", "value"),
    [
        (
            "recipes={cayley: [encoder=cayley_per_head], rope: [encoder=rope_mixed]}",
            "recipes",
            {"cayley": ["encoder=cayley_per_head"], "rope": ["encoder=rope_mixed"]},
        ),
        (
            "recipes={a-b.2: {train: ['x=[1,2]', \"y='it'\"], collect: noise_rad=0.1}, c: }",
            "recipes",
            {"a-b.2": {"train": ["x=[1,2]", "y='it'"], "collect": "noise_rad=0.1"}, "c": None},
        ),
        ("train=[trainer.steps=2,~logger]", "train", ["trainer.steps=2", "~logger"]),
        ("recipes=mine.yaml", "recipes_file", "mine.yaml"),
        ("task=kuka_pick", "tasks", ["kuka_pick"]),
        ("task=[a,b]", "tasks", ["a", "b"]),
        ("suite=quick", "suite_name", "quick"),
        ("trainings=5", "trainings", 5),
    ],
)
def test_hydra_reads_command_lines(argument: str, key: str, value: object) -> None:
    changed = with_recipes(["stringline-experiment", argument])
    assert changed[0] == "stringline-experiment"
    parsed = OverridesParser.create().parse_override(changed[1])
    assert (parsed.key_or_group, parsed.value()) == (key, value)


def test_a_list_whose_aliases_stand_for_too_much_is_left_to_hydra() -> None:
    """Hydra has no aliases, and refuses them."""
    levels = ", ".join(f"&l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 9))
    argument = f"recipes=[&l0 [a, b, c], {levels}]"
    start = time.process_time()
    assert with_recipes(["run", argument]) == ["run", argument]
    assert time.process_time() - start < 1.0


def test_a_line_that_is_not_yaml_is_left_to_hydra() -> None:
    assert with_recipes(["x", "recipes={a: [", "--help"]) == ["x", "recipes={a: [", "--help"]


def test_recipes_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("rope: [encoder=rope_mixed]\nown: {train: [], collect: [noise_rad=0.1]}\n")
    assert parse_recipes(None, str(file)) == (
        TrainingRecipe("rope", ("encoder=rope_mixed",)),
        TrainingRecipe("own", (), ("noise_rad=0.1",)),
    )
    with pytest.raises(ValueError, match=r"The file of recipes .*no.yaml cannot be read"):
        parse_recipes(None, str(tmp_path / "no.yaml"))


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        (None, "recipes is None; allowed: a mapping of names to overrides"),
        ({}, "recipes is {}; allowed"),
        (["a"], r"recipes is \['a'\]; allowed"),
        ({"../x": []}, r"'../x' has a name that is not allowed; allowed: letters, digits"),
        ({"a": {"trian": []}}, "no part of the recipe 'a' 'trian'. Did you mean 'train'"),
        ({"a": ["encoder"]}, "The recipe 'a' has 'encoder'; allowed: a list of overrides"),
        ({"a": [3]}, "The recipe 'a' has 3; allowed"),
        ({"a": ["x=1"], "b": ["x=1"]}, "'a' and 'b' have the same overrides; .*trainings=N"),
    ],
)
def test_bad_recipes(plain: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_recipes(plain, None)


@pytest.mark.parametrize(
    ("command", "override", "message"),
    [
        ("stringline-train", "encoder=rope_mixd", "no encoder 'rope_mixd'. Did you mean 'rope_mi"),
        ("stringline-train", "trainer.stepz=3", "no option 'trainer.stepz'. Did you mean 'train"),
        ("stringline-train", "trainer.steps=many", "'trainer.steps' is 'many'; allowed: numbers"),
        ("stringline-train", "output=x", "because stringline-experiment sets output"),
        ("stringline-train", "trainer.seed=1", "because stringline-experiment sets trainer.seed"),
        ("stringline-collect", "noise=1", "There is no option 'noise'"),
        ("stringline-eval", "+suite=quick", "because stringline-experiment sets suite"),
    ],
)
def test_wrong_overrides_name_the_recipe(command: str, override: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^The recipe 'a': .*{message}"):
        check_command(command, (override,), "The recipe 'a'")


def test_right_overrides() -> None:
    check_command("stringline-train", ("encoder=rope_mixed", "logger=null"), "x")
    check_command("stringline-eval", ("execute_steps=8", "task.time_limit_s=3"), "x")
    assert names_data(["encoder=rope", "dataset.path=x"])
    assert not names_data(["encoder=rope", "dataset.held_out=3"])


@pytest.mark.parametrize(
    "overrides",
    [
        ("policy/observation_encoder=vit", "encoder=rope_mixed"),
        ("policy/observation_encoder=vit", "encoder.values=false"),
        ("policy/observation_encoder=vit", "coordinates=grid"),
        ("policy=act", "depth=normals"),
    ],
)
def test_options_without_effect_on_the_network_are_refused(overrides: tuple[str, ...]) -> None:
    """Recipes that differ only in them would compare a network with itself."""
    option = overrides[1].partition("=")[0]
    with pytest.raises(ValueError, match=f"recipe: {option} has no effect.*encoder=places"):
        check_command("stringline-train", overrides, "recipe")
    check_command("stringline-train", overrides[1:], "recipe")


def test_an_option_that_another_option_reads_has_an_effect() -> None:
    """The encoder of the places reads the wavelengths of the coordinates."""
    check_command("stringline-train", ("coordinates.wavelengths=[0.04,3.0]",), "recipe")
