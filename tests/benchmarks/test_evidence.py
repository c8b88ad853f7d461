"""The cells of the campaign: stable names, valid commands, and the page of results."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hydra import compose, initialize_config_module

ROOT = Path(__file__).parents[2]
FIRST = "hand_over_banana/cayley_values/metric/0/small"
LOOK = "kuka_pick-v2/grippers_noisy_learned/0/small"
CHOSEN = ("none", "cayley_values")
MODULES = (
    "evidence_recipe",
    "evidence_cells",
    "evidence_looks",
    "evidence_page",
    "evidence_looks_page",
    "evidence_tasks",
    "evidence_tasks_page",
    "evidence_summary",
    "evidence",
)


@pytest.fixture(scope="module")
def modules() -> dict[str, ModuleType]:
    return {name: import_module(name) for name in MODULES}


@pytest.fixture(scope="module")
def evidence(modules: dict[str, ModuleType]) -> ModuleType:
    return modules["evidence"]


@pytest.fixture(scope="module")
def page(modules: dict[str, ModuleType]) -> ModuleType:
    return modules["evidence_page"]


@pytest.fixture(scope="module")
def summary(modules: dict[str, ModuleType]) -> ModuleType:
    return modules["evidence_summary"]


@pytest.fixture(scope="module")
def looks(modules: dict[str, ModuleType]) -> ModuleType:
    return modules["evidence_looks"]


@pytest.fixture(scope="module")
def looks_page(modules: dict[str, ModuleType]) -> ModuleType:
    return modules["evidence_looks_page"]


def test_what_was_measured_is_the_answer_to_a_cell(
    evidence: ModuleType, modules: dict[str, ModuleType]
) -> None:
    recipe = modules["evidence_recipe"]
    names = [cell.name for cell in evidence.questions()]
    assert len(set(names)) == len(names)
    assert evidence.known().keys() <= set(names)
    for line in (line for line in evidence.known().values() if "perception" not in line):
        tasks = line.get("tasks", {"": line})
        count = 25 if "tasks" in line else recipe.SEEDS
        assert {len(outcome["success"]) for outcome in tasks.values()} == {count}


def test_the_most_telling_cells_come_first(evidence: ModuleType) -> None:
    names = [cell.name for cell in evidence.questions()]
    encodings = [
        f"hand_over_banana/{name}/metric/0/small"
        for name in ("cayley_values", "cayley", "rope_mixed", "none")
    ]
    doubled = [f"hand_over_banana/{name}/metric/0/medium" for name in ("cayley_values", "cayley")]
    assert names[:9] == [*encodings, f"{FIRST}/flow", f"{FIRST}/act", f"{FIRST}/energy", *doubled]
    tables = [
        f"kuka_pick-v2/{look}/0/small/{shift}"
        for look in ("grippers_noisy_learned", "2d_values")
        for shift in ("raised_table", "lowered_table")
    ]
    assert names[9:16] == [
        LOOK,
        "kuka_pick-v2/2d_values/0/small",
        *tables,
        "kuka_pick-v2/lifting/0/small",
    ]
    assert names[9 + 12 * 10] == "hand_over_banana/rope_mixed_values/metric/0/small"


def test_the_next_cell_is_the_first_that_is_missing(evidence: ModuleType) -> None:
    everything = evidence.questions()
    assert evidence.chosen(None, everything, {}).name == FIRST
    assert (
        evidence.chosen(None, everything, {cell.name: {} for cell in everything[:4]}).name
        == f"{FIRST}/flow"
    )
    assert evidence.chosen(None, everything, {cell.name: {} for cell in everything}) is None
    with pytest.raises(
        ValueError, match=f"There is no cell '{FIRST}/flo'. Did you mean '{FIRST}/flow'"
    ):
        evidence.chosen(f"{FIRST}/flo", everything, {})


def test_cells_are_found_by_prefix(evidence: ModuleType) -> None:
    found = evidence.below("kuka_pick-v2/2d/1")
    scales = [cell.scale for cell in found]
    assert scales == [name for name in ("small", "medium", "medium_missed") for _ in range(10)]
    assert all(cell.look == "2d" and cell.seed == 1 for cell in found)
    with pytest.raises(ValueError, match=r"There is no cell below 'kuka_push'\. --list shows all"):
        evidence.below("kuka_push")


@pytest.mark.slow
def test_cells_with_the_same_demonstrations_collect_them_by_the_same_command(
    evidence: ModuleType,
) -> None:
    collected: dict[str, tuple[str, set[str]]] = {}
    for cell in evidence.questions():
        for arguments in collections(cell):
            output = next(each for each in arguments if each.startswith("output="))
            first, wanted = collected.setdefault(output, (cell.name, set(arguments)))
            assert set(arguments) == wanted, f"{cell.name} and {first}"


def collections(cell: Any) -> Iterator[list[str]]:
    """Yields the arguments of the collections of a cell."""
    with suppress(SystemExit):  # A later command may need another cell's checkpoint.
        for name, arguments in cell.commands():
            if name == "collect":
                yield arguments


@pytest.mark.slow
def test_every_choice_is_a_command_that_can_be_given(modules: dict[str, ModuleType]) -> None:
    """The files have each option: Hydra refuses those that are not there."""
    everything = [
        *modules["evidence_cells"].first_cells(),
        *modules["evidence_cells"].cells("small"),
    ]
    colour = dict(modules["evidence_cells"].colour_cells()[0].commands())
    assert colour["data"][2] == colour["train"][0].replace("dataset.path", "output")
    telling = {
        (cell.encoding, cell.policy): cell for cell in everything if cell.coordinates == "metric"
    }
    assert {policy for _, policy in telling} == set(modules["evidence_cells"].POLICIES)
    kinds = {}
    with initialize_config_module("stringline.configs", version_base="1.3"):
        for (encoding, policy), cell in telling.items():
            training = compose("train", overrides=dict(cell.commands())["train"])
            assert training.policy.observation_encoder["_target_"].endswith("ObservationEncoder"), (
                "all kinds see the same"
            )
            assert training.policy.observation_encoder.dim == training.policy.dim == 128
            assert training.policy.observation_encoder["values"] == encoding.endswith("_values")
            kinds[policy] = training.policy
        given = dict(everything[0].commands())
        for verb in ("collect", "eval"):
            compose(verb, overrides=given[verb])
        compose("data/cache", overrides=colour["data"][1:])
        for cell in (
            *modules["evidence_cells"].third_party_cells("small"),
            *modules["evidence_looks"].look_cells("medium")[:2],
            *modules["evidence_looks"].look_cells("medium_missed")[:2],
        ):
            for verb, (first, *others) in cell.commands():
                if verb == "data":
                    compose(f"data/{first}", overrides=others)
                else:
                    compose(verb, overrides=[first, *others])
        rays = compose("train", overrides=colour["train"]).policy.observation_encoder.coordinates
        assert rays["_target_"] == "stringline.RayPlaces"
    assert kinds["act"].chunk == 100
    assert kinds["act"].kl_weight == 10
    assert {kind: found["_target_"].rpartition(".")[2] for kind, found in kinds.items()} == {
        "diffusion": "DiffusionPolicy",
        "flow": "FlowPolicy",
        "act": "ActPolicy",
        "energy": "EnergyPolicy",
    }


@pytest.mark.slow
def test_peers_have_one_camera_and_insertions_small_disturbances(
    modules: dict[str, ModuleType],
) -> None:
    with initialize_config_module("stringline.configs", version_base="1.3"):
        (*_, peers) = (
            cell
            for cell in modules["evidence_cells"].third_party_cells("small")
            if cell.coordinates == "grid_overhead"
        )
        read = compose(
            "train", overrides=dict(peers.commands())["train"]
        ).policy.observation_encoder
        assert read.cameras == ["overhead"]
        *_, fitted = modules["evidence_cells"].third_party_cells("longer")
        assert (fitted.task, peers.task) == ("gym_aloha_insertion", "gym_aloha_insertion")
        collected = [
            compose("collect", overrides=dict(cell.commands())["collect"])
            for cell in (peers, fitted)
        ]
        assert [each.noise_rad for each in collected] == [0.03, 0.005]
        assert read.coordinates["_target_"] == "stringline.GridPlaces"
        assert read.depth_input["_target_"] == "stringline.ColourOnly"


def observed(looks: ModuleType, look: str, version: int) -> Any:
    cell = looks.LookCell(look, 0, "small", version=version)
    with initialize_config_module("stringline.configs", version_base="1.3"):
        policy = compose("train", overrides=dict(cell.commands())["train"]).policy
    assert policy.observation_encoder.cameras == ["overhead", "wrist"]
    assert policy.action_space["_target_"].endswith("GripperPoses")
    assert ("gripper_space" in policy) == (version == 2)
    return policy


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2])
def test_every_look_is_a_command_that_can_be_given(looks: ModuleType, version: int) -> None:
    found = {}
    for look in looks.LOOKS[version]:
        encoder = observed(looks, look, version).observation_encoder
        kinds = [
            encoder[name]["_target_"].rpartition(".")[2]
            for name in ("encoding", "coordinates", "depth_input")
        ]
        found[look] = (*kinds, encoder["values"])
    lifting = ("CayleyString", "MetricPlaces", "ColourOnly", True)
    assert found == {
        "lifting": lifting,
        "2d": ("SinusoidalEncoding", "GridPlaces", "ColourOnly", False),
        "normals_lifting": ("CayleyString", "MetricPlaces", "SurfaceNormals", True),
        "normals": ("SinusoidalEncoding", "GridPlaces", "SurfaceNormals", False),
        "channel": ("SinusoidalEncoding", "GridPlaces", "DepthChannel", False),
        "string_lifting": ("CirculantString", "PatchDepthPlaces", "ColourOnly", False),
        "2d_values": ("CayleyString", "GridPlaces", "ColourOnly", True),
        "2d_attention": ("CayleyString", "GridPlaces", "ColourOnly", False),
    } | {look: lifting for look in looks.LOOKS[version] if look.startswith("grippers")}


@pytest.mark.slow
def test_looks_of_places_differ_in_their_names(looks: ModuleType) -> None:
    found = {}
    for look in looks.PLACES:
        policy = observed(looks, look, 2)
        encoder = policy.observation_encoder
        found[look] = (
            "frames" in encoder,
            policy.get("action_places", {}).get("at"),
            encoder.learned_places,
        )
    assert found == {
        "2d_values": (False, None, False),
        "lifting": (False, None, False),
        "grippers": (True, None, False),
        "grippers_noisy": (True, "noisy_pose", False),
        "grippers_learned": (True, None, True),
        "grippers_noisy_learned": (True, "noisy_pose", True),
    }


def test_worlds_of_a_look_share_its_checkpoint_and_are_those_of_the_suite(
    looks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "RUNS", tmp_path)
    plain, raised = (
        looks.LookCell("2d", 0, "small"),
        looks.LookCell("2d", 0, "small", "raised_table"),
    )
    assert raised.checkpoint == plain.checkpoint
    assert raised.evaluation != plain.evaluation
    assert [verb for verb, _ in raised.commands()] == ["collect", "train", "eval"], (
        "there is no checkpoint yet"
    )
    plain.checkpoint.mkdir(parents=True)
    assert [verb for verb, _ in raised.commands()] == ["eval"]
    assert [verb for verb, _ in plain.commands()] == ["collect", "train", "eval"], (
        "training itself detects that it is complete"
    )
    heights = {"raised_table": {"table_height": 0.1}, "lowered_table": {"table_height": -0.1}}
    light = {name: {name: 1.0} for name in ("dim_light", "side_light", "coloured_light")}
    others = {name: {name: 1.0} for name in ("distractors", "object_colour", "camera_pose")}
    assert looks.shifts() == {
        "": {},
        **heights,
        **light,
        **others,
        "true_depth": {"depth_noise": 0.0},
    }
    with initialize_config_module("stringline.configs", version_base="1.3"):
        for cell, options in ((plain, {}), (raised, heights["raised_table"])):
            settings = compose("eval", overrides=dict(cell.commands())["eval"])
            assert dict(settings.task.options) == options | {"start_spread": 1.0}
            assert (settings.task.name, settings.seeds, settings.videos) == (
                "kuka_pick",
                100,
                cell is plain,
            )
        collected = compose("collect", overrides=dict(plain.commands())["collect"])
    assert (dict(collected.task.options), collected.lost_grasps) == ({"start_spread": 1.0}, 0.2)


def test_outcomes_are_in_the_order_of_the_seeds(modules: dict[str, ModuleType]) -> None:
    recipe = modules["evidence_recipe"]
    results = [
        {
            "seed": recipe.FIRST_SEED + index,
            "success": index < 3,
            "stage": 3 if index < 3 else index % 2,
        }
        for index in reversed(range(recipe.SEEDS))
    ]
    found = recipe.outcomes([json.dumps({"task": "kuka_pick"}), *map(json.dumps, results)])
    assert found["success"] == "111" + "0" * 97
    assert found["stages"] == "333" + "10" * 48 + "1"


def line(encoding: str, successes: int, policy: str | None = None) -> dict[str, object]:
    """Returns the line of a cell that succeeds on the first so many of ten seeds."""
    kind = {} if policy is None else {"policy": policy}
    return {
        "task": "mug",
        "encoding": encoding,
        "coordinates": "metric",
        "seed": 0,
        "scale": "small",
        "success": "1" * successes + "0" * (10 - successes),
        **kind,
    }


def seen(look: str, successes: int, shift: str = "") -> dict[str, object]:
    """Returns the line of a look that succeeds on the first `successes` of ten seeds."""
    success = "1" * successes + "0" * (10 - successes)
    stages = success.replace("1", "3").replace("0", "2", 1)
    return {
        "task": "kuka_pick",
        "look": look,
        "seed": 0,
        "scale": "small",
        "shift": shift,
        "success": success,
        "stages": stages,
    }


def test_policies_are_compared_with_diffusion_on_the_same_seeds(page: ModuleType) -> None:
    lines = [
        line("cayley_values", 9),
        line("none", 2, "diffusion"),
        line("cayley_values", 4, "act"),
        seen("2d", 1),
    ]
    encodings, policies = page.tables(lines).split("### ")[1:]
    assert encodings.startswith("mug, metric coordinates, small\n")
    assert "| none | 2/10 = 20 % [6, 51] | - | +70 points [+" in encodings
    assert "+70 points" in encodings, "on seven seeds the reference alone succeeds"
    assert "act" not in encodings
    assert policies.startswith(
        "mug, metric coordinates, small: kinds of policies, all with cayley_values\n"
    )
    assert "| diffusion | 9/10 = 90 % " in policies
    assert "| act | 4/10 = 40 % " in policies
    assert "+50 points" in policies
    assert ", p 0.062 | - |" in policies, "five discordant pairs, all one way: 2 / 2^5"


def test_trainings_are_shown_one_by_one(page: ModuleType) -> None:
    """Several trainings have an interval of their recipe; a single one says nothing about it."""
    several = [
        line("cayley_values", 9),
        line("cayley_values", 7) | {"seed": 1},
        line("none", 1),
        line("none", 4) | {"seed": 1},
        line("cayley", 5),
    ]
    text = page.tables(several)
    assert page.ONCE in text
    trained = next(row for row in text.splitlines() if row.startswith("| cayley_values |"))
    assert "9/10 = 90 % [60, 98]; 7/10 = 70 % [40, 89] | 80 % [" in trained
    assert "/20" not in text, "no training is pooled with another"
    none = next(row for row in text.splitlines() if row.startswith("| none |"))
    low, high = page.recipe_difference(
        [page.table_of_outcomes({0: "1" + "0" * 9, 1: "1111" + "0" * 6})],
        [page.table_of_outcomes({0: "1" * 9 + "0", 1: "1" * 7 + "000"})],
    ).interval
    assert none.count("+80 points") == none.count("+30 points") == 1
    assert f"| +55 points [{100 * low:+.0f}, {100 * high:+.0f}], posterior " in none
    once = next(row for row in text.splitlines() if row.startswith("| cayley |"))
    assert "| 5/10 = 50 % [24, 76] | - | +40 points" in once
    assert once.endswith(" | - |")
    assert page.ONCE not in page.tables(several[:4])


def test_lines_of_several_tasks_are_left_to_their_own_page(page: ModuleType) -> None:
    lines = [line("cayley_values", 9), line("none", 2)]
    assert page.tables([*lines, tasks_line("none", 0, 2, 4)]) == page.tables(lines)


def test_one_kind_of_policy_is_no_comparison(page: ModuleType) -> None:
    assert "kinds of policies" not in page.tables([line("cayley_values", 9), line("none", 2)])


def test_looks_are_compared_with_lifting_and_with_themselves_in_distribution(
    looks_page: ModuleType,
) -> None:
    shifted = [
        seen("lifting", 6, "raised_table"),
        seen("2d", 0, "raised_table"),
        seen("channel", 3, "raised_table"),
    ]
    text = looks_page.tables([*shifted, seen("2d", 4), seen("lifting", 9), line("none", 2)])
    title = text.splitlines()[0]
    columns, _, *rows = [row for row in text.splitlines() if row.startswith("|")]
    assert title == "### kuka_pick-v1, small: looks and shifts"
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert {len(row) for row in cells} == {columns.count("|") - 1}
    assert [row[:2] for row in cells] == [
        ["in distribution", "lifting"],
        ["in distribution", "2d"],
        ["raised table", "lifting"],
        ["raised table", "channel"],
        ["raised table", "2d"],
    ]
    lifting, flat, lifting_raised, channel_raised, flat_raised = cells
    assert flat[2].startswith("4/10 = 40 % ")
    assert flat[3] == flat[7] == "-", "one training says nothing about a recipe"
    assert flat[4].startswith("5/10 = 50 % ")
    assert lifting[5:] == ["-", "-", "-", "74 %"]
    assert flat[5] == "-"
    assert flat[6].startswith("+50 points [")
    assert flat[6].endswith("p 0.12"), "2 / 2^5 twice: after Holm the second of three"
    assert flat[8] == "65 %"
    assert lifting_raised[5].startswith("+30 points [")
    assert lifting_raised[6:] == ["-", "-", "50 %"]
    assert channel_raised[5] == "-", "not measured in distribution"
    assert channel_raised[6].startswith("+30 points [")
    assert channel_raised[8] == "-"
    assert flat_raised[5].startswith("+40 points [")
    assert flat_raised[6].startswith("+60 points [")
    assert flat_raised[6].endswith("p 0.094"), "2 / 2^6 three times"
    assert flat_raised[8] == "10 %"


def test_versions_of_the_study_have_tables_of_their_own(looks_page: ModuleType) -> None:
    lines = [seen("2d", 4, "raised_table"), seen("2d", 6, "raised_table") | {"version": 2}]
    former, latter = looks_page.tables(lines).split("### ")[1:]
    assert former.startswith("kuka_pick-v1, small")
    assert "| raised table | 2d | 4/10" in former
    assert latter.startswith("kuka_pick-v2, small")
    assert "| raised table | 2d | 6/10" in latter


@pytest.mark.slow
def test_a_policy_of_twelve_tasks_is_trained_and_measured_by_valid_commands(
    modules: dict[str, ModuleType],
) -> None:
    module = modules["evidence_tasks"]
    cell = module.tasks_cells("small")[0]
    assert cell.name == "aloha12/cayley_values/0/small"
    commands = list(cell.commands())
    assert [verb for verb, _ in commands] == ["collect"] * 12 + ["train", "eval"]
    with initialize_config_module("stringline.configs", version_base="1.3"):
        for (_, collect), task in zip(commands[:12:5], module.tasks()[::5], strict=True):
            settings = compose("collect", overrides=collect)
            assert (settings.task.name, settings.episodes) == (task, 100)
            assert dict(settings.task.options) == {"start_spread": 1.0, "strict": True}
        training = compose("train", overrides=commands[12][1])
        for encoding in module.CHOICES:
            other = dict(module.TasksCell(encoding, 1, "large").commands())
            trainer = compose("train", overrides=other["train"]).trainer
            plain = encoding.endswith("_plain")
            assert compose("collect", overrides=other["collect"]).varied == (not plain)
            assert ("_plain_large" in other["collect"][1]) == plain
            assert (other["eval"][0] == "suite=aloha12_home") == plain
            assert (trainer.seed, trainer.device, trainer.batch_size) == (1, "cuda", 256)
        evaluation = commands[13][1]
        compose("eval", overrides=[each for each in evaluation if not each.startswith("suite=")])
    assert len(training.dataset.stores) == 12
    assert training.dataset.equal_tasks
    assert "suite=aloha12" in evaluation
    assert set(cell.results()) == set(module.tasks())


def tasks_line(encoding: str, seed: int, bowls: int, pens: int) -> dict[str, object]:
    """Returns the line of a policy of two tasks, with so many successes of ten."""
    tasks = {
        task: {"success": "1" * many + "0" * (10 - many), "stages": "3" * many + "1" * (10 - many)}
        for task, many in (("bowl_on_rack", bowls), ("hand_over_pen", pens))
    }
    return {
        "campaign": "aloha12",
        "encoding": encoding,
        "seed": seed,
        "scale": "small",
        "tasks": tasks,
    }


def test_tasks_count_equally_in_the_table_of_one_policy(modules: dict[str, ModuleType]) -> None:
    page = modules["evidence_tasks_page"]
    lines = [
        tasks_line("none", 0, 2, 4),
        tasks_line("cayley_values", 0, 9, 5),
        tasks_line("cayley_values", 1, 7, 3),
        line("none", 2),
    ]
    text = page.tables(lines)
    assert "| task | cayley_values | none | STRING's table 5" in text
    (bowls,) = [row for row in text.splitlines() if row.startswith("| bowl_on_rack |")]
    assert "9/10 = 90 % [60, 98]; 7/10 = 70 % [40, 89] | 2/10" in bowls
    assert bowls.endswith("| 90 %, 80 %, 100 % |")
    (means,) = [row for row in text.splitlines() if row.startswith("| mean over tasks |")]
    assert "70 % [" in means
    assert "50 % [" in means
    assert "| 30 % [" in means
    (recipe,) = [row for row in text.splitlines() if row.startswith("| mean, recipe |")]
    assert recipe.startswith("| mean, recipe | 60 % [")
    assert recipe.endswith("| - | - |")
    assert "bowl_on_rack 1: 4, hand_over_pen 1: 12" in text.replace("; ", ", ")
    both = page.tables([*lines, tasks_line("none", 1, 2, 4)])
    assert "+30 points [" in both
    assert page.tables([line("none", 2)]) == ""


def test_policies_that_start_elsewhere_have_a_table_of_their_own(
    modules: dict[str, ModuleType],
) -> None:
    page = modules["evidence_tasks_page"]
    varied = [tasks_line("none", 0, 2, 4), tasks_line("cayley_values", 0, 9, 5)]
    plain = [tasks_line(f"{name}_plain", seed, 9, 5 - seed) for name in CHOSEN for seed in (0, 1)]
    before, text = page.tables(varied), page.tables([*varied, *plain])
    assert text.startswith(before)
    added = text.removeprefix(before)
    assert "small: one policy for all tasks, plain experts from the home pose" in added
    assert "| task | cayley_values_plain | none_plain |" in added
    assert "| cayley_values_plain less this, recipes, posterior (Holm) | - | +0 points [" in added


def test_without_lines_there_is_no_table(page: ModuleType, looks_page: ModuleType) -> None:
    assert looks_page.tables([line("none", 2)]) == page.tables([seen("2d", 2)]) == ""


def test_the_page_is_written_between_its_marks(page: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"Before.\n{page.BEGIN}\nold\n{page.END}\nAfter.\n")
    page.write_page(file, "new\n")
    assert file.read_text() == f"Before.\n{page.BEGIN}\n\nnew\n\n{page.END}\nAfter.\n"
    file.write_text("Nothing.\n")
    with pytest.raises(ValueError, match=r"page\.md lacks the lines"):
        page.write_page(file, "new\n")


def test_lines_without_a_policy_are_of_diffusion(
    modules: dict[str, ModuleType], page: ModuleType
) -> None:
    old = json.loads((ROOT / "docs" / "lab" / "results.jsonl").read_text().splitlines()[0])
    assert "policy" not in old
    assert page.policy_of(old) == "diffusion"
    cell = modules["evidence_cells"].EncodingCell(
        *(old[name] for name in ("task", "encoding", "coordinates", "seed", "scale"))
    )
    assert cell.name == old["name"]


@pytest.mark.slow
def test_the_pages_show_all_that_was_measured(
    evidence: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables of the lab and the values of docs/results.md agree with docs/lab/results.jsonl."""
    lines = list(evidence.known().values())
    lab, summary = evidence.LAB, evidence.SUMMARY
    shutil.copytree(lab, tmp_path / "lab")
    shutil.copy(summary, tmp_path)
    monkeypatch.setattr(evidence, "LAB", tmp_path / "lab")
    monkeypatch.setattr(evidence, "SUMMARY", tmp_path / summary.name)
    evidence.write(lines)
    assert (tmp_path / summary.name).read_text() == summary.read_text()
    for page in sorted(lab.glob("*.md")):
        assert (tmp_path / "lab" / page.name).read_text() == page.read_text(), page.name


def test_the_summary_shows_trainings_means_and_differences(summary: ModuleType) -> None:
    lines = {
        f"{name}/0/small": line(name, successes) | {"name": f"{name}/0/small"}
        for name, successes in (("a", 9), ("b", 2))
    }
    page = "| x | <!-- cells: a/0/small -->- | <!-- less: a/0/small b/0/small -->old |\n"
    shown = summary.filled(page, lines)
    assert "<!-- cells: a/0/small -->9/10 = 90 % [" in shown
    assert "<!-- less: a/0/small b/0/small -->+70 points [" in shown
    assert shown.endswith("] |\n")
    assert summary.filled(shown, lines) == shown
    second = line("a", 7) | {"name": "a/1/small", "seed": 1}
    several = summary.filled("<!-- cells: a/*/small -->", lines | {"a/1/small": second})
    assert several.startswith("<!-- cells: a/*/small -->80 % [")
    assert several.strip().endswith("], 2 trainings")


def test_the_summary_sums_tasks_and_lists_measures(summary: ModuleType) -> None:
    tasks = tasks_line("none", 0, 2, 4) | {"name": "aloha12/none/0/large"}
    measured = {"name": "perception/classify/none/0/small", "seed": 0, "measures": {"top1": 0.5}}
    lines = {str(one["name"]): one for one in (tasks, measured)}
    assert summary.measured("aloha12/none/0/large", lines).startswith("6/20 = 30 % [")
    assert summary.measured("perception/classify/none/*/small#top1", lines) == "0.500"


def test_a_cell_that_was_not_measured_is_refused(summary: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"Did you mean 'a/0/small'"):
        summary.measured("a/0/smal", {"a/0/small": line("a", 9) | {"name": "a/0/small"}})


# As a training: after Ctrl-C, its state is saved when a step is complete.
SAVES_LATE = """
import pathlib, signal, sys, time

def save(number, frame):
    time.sleep(1.0)
    pathlib.Path(sys.argv[1]).write_text("saved")
    sys.exit()

signal.signal(signal.SIGINT, save)
print("started", flush=True)
time.sleep(60.0)
"""


def test_ctrl_c_waits_for_the_state_of_a_command(tmp_path: Path) -> None:
    state = tmp_path / "state"
    caller = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "sys.path.append('benchmarks'); import evidence; "
        f"evidence.status_of([sys.executable, '-c', {SAVES_LATE!r}, {str(state)!r}])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", caller],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / ".src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60.0)
    assert process.returncode == -signal.SIGINT
    assert errors.endswith("KeyboardInterrupt\n")
    assert state.read_text() == "saved"
