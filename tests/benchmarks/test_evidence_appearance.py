"""Cells of the appearance of demonstrations: valid commands, shared files, and their tables."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from hydra import compose, initialize_config_module


@pytest.fixture(scope="module")
def cells() -> ModuleType:
    return import_module("evidence_appearance")


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return import_module("evidence_choices_page")


@pytest.mark.slow
@pytest.mark.parametrize("task", ["hand_over_banana", "kuka_pick"])
def test_every_recipe_is_a_command_that_can_be_given(
    cells: ModuleType, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("evidence_perception"), "RUNS", tmp_path)
    detector = tmp_path / "perception/detect3d_tables/policy/1/small/checkpoint"
    with pytest.raises(SystemExit, match="begins with perception/detect3d_tables/policy/1/small;"):
        list(cells.AppearanceCell(task, "plain_detector", 1, "small").commands())
    detector.mkdir(parents=True)
    found = {}
    with initialize_config_module("stringline.configs", version_base="1.3"):
        for name in cells.RECIPES:
            commands = dict(cells.AppearanceCell(task, name, 1, "demonstrations_25").commands())
            collected = compose("collect", overrides=commands["collect"])
            training = compose("train", overrides=commands["train"])
            assert collected.segments
            spread = 0.0 if cells.RECIPES[name].home else 1.0
            assert collected.task.options.start_spread == spread
            assert bool(collected.task.options.get("strict")) == (task == "hand_over_banana")
            assert (collected.episodes, training.trainer.seed) == (25, 1)
            frozen = ["observation_encoder.tokenise.encode"] if "frozen" in name else []
            assert training.trainer.freeze == frozen
            encoder = training.policy.observation_encoder
            textures = [each["_target_"] for each in training.augmentation.transforms]
            looks = collected.task.options.get("looks", "plain")
            if "depth_input" in encoder:
                network = encoder.depth_input["_target_"].rpartition(".")[2]
                assert network == ("NormalsOnly" if "normals" in name else "ColourOnly")
            found[name] = (
                looks if isinstance(looks, str) else list(looks.one_of),
                textures[-1].rpartition(".")[2] if textures else "",
                encoder.images.weights if "images" in encoder else training.initialise_from,
            )
    usual = {"hand_over_banana": "", "kuka_pick": "LightAugmentation"}[task]
    assert found == {
        "plain": ("plain", usual, None),
        "randomised": ("randomised", usual, None),
        "plain_strong": ("plain", "ColourSensor", None),
        "randomised_strong": ("randomised", "ColourSensor", None),
        "plain_imagenet": ("plain", usual, "installed"),
        "plain_imagenet_frozen": ("plain", usual, "installed"),
        "randomised_imagenet": ("randomised", usual, "installed"),
        "plain_detector": ("plain", usual, str(detector)),
        "plain_home": ("plain", usual, None),
        "randomised_home": ("randomised", usual, None),
        "mixed_home": (["plain", *["randomised"] * 3], usual, None),
        "mixed_dropout_home": (["plain", *["randomised"] * 3], "ColourDropout", None),
        "mixed_normals_home": (["plain", *["randomised"] * 3], usual, None),
    }
    recipe = cells.AppearanceCell(task, "plain_detector", 1, "small").recipe
    assert recipe["initialise_from"] == "perception/detect3d_tables/policy/1/small"


def test_worlds_share_the_checkpoint_and_recipes_the_demonstrations(
    cells: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (cells, import_module("evidence_choices")):
        monkeypatch.setattr(module, "RUNS", tmp_path)
    plain, dim, other = (
        cells.AppearanceCell("hand_over_banana", name, 0, "small", world)
        for name, world in (("plain", ""), ("plain", "dim_light"), ("plain_imagenet", ""))
    )
    assert plain.name == "appearance/hand_over_banana/plain/0/small"
    assert dim.checkpoint == plain.checkpoint != other.checkpoint
    assert dim.evaluation != plain.evaluation
    assert [verb for verb, _ in dim.commands()] == ["collect", "train", "eval"]
    plain.checkpoint.mkdir(parents=True)
    assert [verb for verb, _ in dim.commands()] == ["eval"]
    assert dict(plain.commands())["collect"] == dict(other.commands())["collect"]


def test_every_world_is_a_command_that_can_be_given(cells: ModuleType) -> None:
    with initialize_config_module("stringline.configs", version_base="1.3"):
        for world, options in cells.WORLDS.items():
            cell = cells.AppearanceCell("kuka_pick", "plain", 0, "small", world)
            settings = compose("eval", overrides=dict(cell.commands())["eval"])
            assert dict(settings.task.options) == {"start_spread": 1.0} | options
            assert settings.videos == (not world)


@pytest.mark.slow
def test_demonstrations_and_trials_start_alike(cells: ModuleType) -> None:
    stores = set()
    with initialize_config_module("stringline.configs", version_base="1.3"):
        for choice in ("plain", "randomised", "plain_imagenet", "plain_home", "mixed_home"):
            cell = cells.AppearanceCell("hand_over_banana", choice, 0, "small", "held_out")
            commands = dict(cell.commands())
            stores.add(cell.store.name)
            for verb in ("collect", "eval"):
                options = compose(verb, overrides=commands[verb]).task.options
                assert options.get("start_spread", 1.0) == (not choice.endswith("_home"))
    assert stores == {"plain_100", "randomised_100", "plain_home_100", "mixed_home_100"}


@pytest.mark.slow
def test_every_choice_of_places_is_a_command_that_can_be_given() -> None:
    places = import_module("evidence_places")
    found = {}
    with initialize_config_module("stringline.configs", version_base="1.3"):
        for choice in places.CHOICES:
            cell = places.PlacesCell("bowl_on_rack", choice, 0, "small")
            commands = dict(cell.commands())
            experts = next((end for end in ("_plain", "_home") if choice.endswith(end)), "")
            assert commands["collect"][1].endswith(f"aloha12/bowl_on_rack{experts}_small")
            collection = compose("collect", overrides=commands["collect"])
            assert collection.varied == (experts != "_plain")
            evaluation = compose("eval", overrides=commands["eval"])
            for settings in (collection, evaluation):
                assert settings.task.options.get("start_spread", 1.0) == (not experts)
            policy = compose("train", overrides=commands["train"]).policy
            encoder = policy.observation_encoder
            found[choice] = (
                "gripper_space" in policy,
                encoder.coordinates["_target_"].rpartition(".")[2],
                "frames" in encoder,
                "action_places" in policy,
            )
        for world in places.WORLDS:
            cell = places.PlacesCell("bowl_on_rack", "base", 0, "small", world)
            compose("eval", overrides=dict(cell.commands())["eval"])
    assert found == {
        "joints": (False, "MetricPlaces", False, False),
        "grid": (True, "GridPlaces", False, False),
        "base": (True, "MetricPlaces", False, False),
        "grippers": (True, "MetricPlaces", True, False),
        "grippers_heads": (True, "MetricPlaces", True, False),
        "base_and_grippers": (True, "MetricPlaces", True, False),
        "grippers_noisy_learned": (True, "MetricPlaces", True, True),
        "joints_plain": (False, "MetricPlaces", False, False),
        "joints_home": (False, "MetricPlaces", False, False),
        "grippers_noisy_learned_plain": (True, "MetricPlaces", True, True),
    }
    cells = places.places_cells()
    assert len({cell.name for cell in cells}) == len(cells)


def test_the_comparison_of_two_trainings_comes_first(cells: ModuleType) -> None:
    found = cells.appearance_cells("kuka_pick")
    assert len(set(found)) == len(found) == len(cells.RECIPES) * 3 * 5 * 7
    first = [(cell.choice, cell.seed) for cell in found[: 8 * 7 : 7]]
    looks = ("plain", "randomised", "plain_home", "mixed_normals_home")
    assert first == [(name, seed) for seed in (0, 1) for name in looks]
    few = [(cell.choice, cell.scale) for cell in found[8 * 7 :][:9]]
    assert few == [
        (choice, f"demonstrations_{count}")
        for count in (100, 50, 25)
        for choice in ("plain_imagenet_frozen", "plain", "plain_detector")
    ]


def seen(appearance: str, successes: int, world: str = "", seed: int = 0) -> dict[str, object]:
    """Returns the line of a recipe that succeeds on the first `successes` of ten seeds."""
    return {
        "task": "hand_over_banana",
        "family": "appearance",
        "choice": appearance,
        "seed": seed,
        "scale": "small",
        "world": world,
        "success": "1" * successes + "0" * (10 - successes),
    }


def test_recipes_are_compared_with_plain_and_with_themselves_in_plain_looks(
    page: ModuleType,
) -> None:
    lines = [
        seen("plain", 9),
        seen("randomised", 8),
        seen("plain", 1, "dim_light"),
        seen("randomised", 7, "dim_light"),
        seen("randomised", 6, "held_out"),
        {"look": "lifting"},
    ]
    text = page.tables(lines)
    assert text.startswith("### hand_over_banana, small: appearance of demonstrations\n")
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in text.splitlines()
        if row.startswith("|")
    ][2:]
    assert [row[:2] for row in rows] == [
        ["plain looks", "plain"],
        ["plain looks", "randomised"],
        ["dim light", "randomised"],
        ["dim light", "plain"],
        ["held out", "randomised"],
    ]
    assert rows[1][2].startswith("8/10 = 80 % ")
    assert rows[1][5].startswith("+10 points [")
    assert rows[2][4].startswith("+10 points [")
    assert rows[2][5].startswith("-60 points [")
    assert rows[2][7] == "10 %, 25 %"
    assert rows[4][5] == "-", "plain demonstrations were not measured there"
    assert page.tables([{"look": "lifting"}]) == ""


def test_recipes_from_the_home_pose_have_a_table_of_their_own(page: ModuleType) -> None:
    """Other starts have the same seeds, so outcomes must not be paired."""
    lines = [seen("plain", 9), seen("plain_home", 8), seen("randomised_home", 7)]
    varied, home = page.tables(lines).split("\n\n### ")
    assert "| plain |" in varied
    assert "_home" not in varied
    title = "hand_over_banana, small: appearance of demonstrations, from the home pose"
    assert home.startswith(f"{title}\n")
    (row,) = (row for row in home.splitlines() if "| randomised_home |" in row)
    assert "+10 points [" in row
    assert "plain_home less this" in home
