"""Instructions: from episodes to windows to tokens, by name or by a text encoder."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.policies.demonstrations import TEXTS, episode, make_store, observation_at
from tests.policies.observation.text_encoder_files import save_text_encoder
from torch import Tensor

from stringline.datasets.contract.contract import (
    NUMBER_KEY,
    instruction_array,
    instruction_number,
    instruction_of,
)
from stringline.datasets.loading.statistics import Statistics
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.checkpoints.load import load_policy, save_policy
from stringline.policies.chunks.chunk import Policy
from stringline.policies.execution.execution import ChunkExecutor, Execution
from stringline.policies.observation.instruction import TaskEmbedding, TextEmbedding
from stringline.policies.observation.observation_encoder import ObservationEncoder

OfDemonstrations = Callable[..., ChunkPolicy]
Configuration = Callable[..., dict[str, object]]
WIDTH = 12


@pytest.fixture
def batch(demonstrations: EpisodeStore) -> dict[str, Tensor]:
    """A window of each of two episodes with different instructions."""
    windows = Windows(demonstrations, chunk=8, cameras=("overhead", "wrist_left", "wrist_right"))
    return {key: torch.from_numpy(value) for key, value in windows.batch([0, 6]).items()}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny untrained CLIP text encoder, with a tokenizer for the demonstrations' words."""
    folder = tmp_path_factory.mktemp("clip")
    save_text_encoder(folder, (*TEXTS, "the pen on the mug"), WIDTH)
    return folder


def by_text(folder: Path, width: int = WIDTH) -> tuple[str, ...]:
    return (
        "+instruction=text",
        f"policy.observation_encoder.instruction.model={folder}",
        f"policy.observation_encoder.instruction.width={width}",
    )


def instructed(text: str) -> dict[str, np.ndarray]:
    return observation_at(episode(0), 0) | {"instruction": instruction_array(text)}


def test_a_text_is_the_same_number_everywhere() -> None:
    """The first 63 bits of SHA-256, as printed by `printf 'hand over the pen' | sha256sum`."""
    assert instruction_number("hand over the pen") == 0xD578C4EF121411A1 >> 1
    assert instruction_number("") == 0
    assert instruction_of({"instruction": instruction_array("schön sacht")}) == "schön sacht"
    assert instruction_of({}) is None
    for wrong in (np.zeros((2, 2), np.uint8), np.zeros(3), np.array([255, 254], np.uint8)):
        with pytest.raises(ValueError, match=r"instruction is not text .*allowed: UTF-8 bytes"):
            instruction_of({"instruction": wrong})


def test_windows_contain_the_instruction_of_their_episode(
    demonstrations: EpisodeStore, measured: Statistics
) -> None:
    windows = Windows(demonstrations, chunk=4)
    expected = [instruction_number(TEXTS[episode % 2]) for episode in windows.episode]
    assert windows.batch(np.arange(len(windows)))[NUMBER_KEY].tolist() == expected
    assert measured.instructions == tuple(sorted(TEXTS))
    assert Statistics.from_dict(measured.to_dict()).instructions == measured.instructions


def test_the_conditioning_depends_on_the_instruction(
    of_demonstrations: OfDemonstrations, batch: dict[str, Tensor]
) -> None:
    policy = of_demonstrations("+instruction=task", "coordinates.places.missing_depth=centroid")
    here = policy.observation_encoder(batch)
    assert here.present is not None
    assert here.present.all()
    swapped = policy.observation_encoder(batch | {NUMBER_KEY: batch[NUMBER_KEY].flip(0)})
    assert (here.tokens - swapped.tokens).abs().amax(dim=(1, 2)).min() > 1e-3
    policy.train().loss(batch).backward()
    assert isinstance(policy.observation_encoder.instruction, TaskEmbedding)
    assert policy.observation_encoder.instruction.table.grad is not None
    assert (policy.observation_encoder.instruction.table.grad.abs().sum(dim=1) > 0).all()


def test_an_empty_instruction_has_no_effect(
    of_demonstrations: OfDemonstrations, batch: dict[str, Tensor]
) -> None:
    every = "coordinates.places.missing_depth=centroid"
    with_instructions = of_demonstrations("+instruction=task", every)
    plain = of_demonstrations(every)
    assert isinstance(with_instructions.observation_encoder, ObservationEncoder)
    assert isinstance(plain.observation_encoder, ObservationEncoder)
    weights = with_instructions.observation_encoder.state_dict()
    del weights["instruction.table"]
    plain.observation_encoder.load_state_dict(weights)
    found = with_instructions.observation_encoder(
        batch | {NUMBER_KEY: torch.tensor([0, instruction_number(TEXTS[0])])}
    )
    assert found.present is not None
    assert found.present.sum(dim=1).tolist() == [14, 15]
    torch.testing.assert_close(
        found.tokens[0][found.present[0]],
        plain.observation_encoder(batch).tokens[0],
        rtol=0,
        atol=1e-5,
    )


def told(policy: Policy, text: str) -> ChunkExecutor:
    """Starts an episode with an instruction."""
    return ChunkExecutor(policy, 0, Execution(), execute_steps=None, instruction=text)


def test_a_missing_instruction_is_rejected(of_demonstrations: OfDemonstrations) -> None:
    policy = of_demonstrations("+instruction=task")
    with pytest.raises(
        ValueError,
        match=r"needs an instruction: .*instructions: hand over the pen, put the mug on the plate",
    ):
        policy.session(0).plan(observation_at(episode(0), 0))
    with pytest.raises(
        ValueError, match=r"no instruction 'hand over the pan'. Did you mean 'hand over the pen'"
    ):
        policy.session(0).plan(instructed("hand over the pan"))
    one, other = (policy.session(0).plan(instructed(text)).action for text in TEXTS)
    assert not np.allclose(one, other, atol=1e-4)
    assert np.array_equal(told(policy, TEXTS[1]).plan(observation_at(episode(0), 0)).action, other)
    assert np.array_equal(told(policy, TEXTS[0]).plan(instructed(TEXTS[1])).action, other), (
        "an instruction in the observation takes precedence"
    )
    with pytest.raises(
        ValueError, match=r"no instruction 'hand over the pan'. Did you mean 'hand over the pen'"
    ):
        told(policy, "hand over the pan")
    unasked = of_demonstrations()
    plain = unasked.session(0).plan(observation_at(episode(0), 0)).action
    assert np.array_equal(
        told(unasked, "anything").plan(observation_at(episode(0), 0)).action,
        plain,
    )


def test_a_policy_with_one_known_instruction_needs_none() -> None:
    embedding = TaskEmbedding(dim=8, known=["only this"])
    assert (
        embedding.number(None) == embedding.number("only this") == instruction_number("only this")
    )
    assert embedding.number("") == 0
    with pytest.raises(
        ValueError,
        match=r"has an unknown instruction. Known instructions: only this",
    ):
        embedding(torch.tensor([0, 5]))


def test_names_may_be_given(
    of_demonstrations: OfDemonstrations, configuration: Configuration
) -> None:
    names = ["stack the cups", *TEXTS]
    policy = of_demonstrations(
        "+instruction=task", f"policy.observation_encoder.instruction.names={names}"
    )
    assert policy.observation_encoder.instruction is not None
    assert policy.observation_encoder.instruction.names == tuple(names)
    assert policy.session(0).plan(instructed("stack the cups")).action.shape == (8, 14)
    with pytest.raises(
        ValueError,
        match=r"no instruction among the names 'hand over the pen'. Did you mean '.* pan'",
    ):
        of_demonstrations(
            "+instruction=task", "policy.observation_encoder.instruction.names=[hand over the pan]"
        )
    with pytest.raises(
        ValueError, match=r"The known instructions are \[\]; .*come from the episodes"
    ):
        TaskEmbedding(dim=8, known=[])


def test_a_checkpoint_keeps_the_names(
    tmp_path: Path, of_demonstrations: OfDemonstrations, configuration: Configuration
) -> None:
    policy = of_demonstrations("+instruction=task")
    save_policy(tmp_path / "c", policy, configuration("+instruction=task"), {})
    again = load_policy(tmp_path / "c")
    assert again.observation_encoder.instruction is not None
    assert again.observation_encoder.instruction.names == tuple(sorted(TEXTS))
    for text in TEXTS:
        assert np.array_equal(
            policy.session(1).plan(instructed(text)).action,
            again.session(1).plan(instructed(text)).action,
        )


@pytest.mark.slow
def test_the_token_of_a_text_is_that_of_its_encoder(
    encoder: Path, of_demonstrations: OfDemonstrations, batch: dict[str, Tensor]
) -> None:
    """Features are the encoder's; only the projection is learned, and draws are unchanged."""
    policy = of_demonstrations(*by_text(encoder)).train()
    torch.manual_seed(3)
    expected_draw = torch.rand(1)
    torch.manual_seed(3)
    policy.observation_encoder(batch)
    instruction = policy.observation_encoder.instruction
    assert isinstance(instruction, TextEmbedding)
    loss = policy.loss(batch)
    loss.backward()
    assert {name for name, _ in instruction.named_parameters()} == {
        "project.weight",
        "project.bias",
    }
    assert instruction.project.weight.grad is not None
    alone = TextEmbedding(dim=32, known=[TEXTS[0]], model=str(encoder), width=WIDTH)
    alone(torch.tensor([instruction_number(TEXTS[0])]))
    row = instruction.names.index(TEXTS[0])
    torch.testing.assert_close(instruction.features[row], alone.features[0], rtol=0, atol=1e-5)
    assert (instruction.features[0] - instruction.features[1]).abs().max() > 0.05
    fresh = TextEmbedding(dim=32, known=TEXTS, model=str(encoder), width=WIDTH)
    torch.manual_seed(3)
    with torch.autocast("cpu", torch.bfloat16):
        fresh(batch[NUMBER_KEY])
    assert torch.equal(torch.rand(1), expected_draw), (
        "encoding draws nothing from the training's numbers"
    )
    torch.testing.assert_close(
        fresh.features[TEXTS.index(TEXTS[0])], alone.features[0], rtol=0, atol=1e-5
    )


def test_new_instructions_are_encoded(encoder: Path, of_demonstrations: OfDemonstrations) -> None:
    policy = of_demonstrations(*by_text(encoder))
    known = policy.session(0).plan(instructed(TEXTS[0])).action
    new = policy.session(0).plan(instructed("the pen on the mug")).action
    assert not np.allclose(new, known, atol=1e-5)
    assert np.array_equal(policy.session(0).plan(instructed("the pen on the mug")).action, new)
    assert np.array_equal(policy.session(0).plan(instructed(TEXTS[0])).action, known)
    assert policy.state_dict()["observation_encoder.instruction.features"].shape == (2, WIDTH)


def test_a_checkpoint_plans_without_the_encoder(
    tmp_path: Path,
    encoder: Path,
    of_demonstrations: OfDemonstrations,
    configuration: Configuration,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For its training texts; for others the error names the missing part."""
    folder = Path(shutil.copytree(encoder, tmp_path / "encoder"))
    policy = of_demonstrations(*by_text(folder))
    expected = policy.session(1).plan(instructed(TEXTS[0])).action
    save_policy(tmp_path / "c", policy, configuration(*by_text(folder)), {})
    shutil.rmtree(folder)
    again = load_policy(tmp_path / "c")
    assert np.array_equal(again.session(1).plan(instructed(TEXTS[0])).action, expected)
    with pytest.raises(
        ValueError,
        match=r"no instruction 'sing'. .*New ones cannot be encoded: There is no folder .*encoder",
    ):
        again.session(1).plan(instructed("sing"))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        ValueError,
        match=r"needs transformers, which is not installed. Run: pip install .stringline\[text\]",
    ):
        again.session(1).plan(instructed("sing"))


def test_an_unsuitable_encoder_is_rejected(tmp_path: Path, encoder: Path) -> None:
    numbers = torch.tensor([instruction_number("go")])
    with pytest.raises(ValueError, match=r"has 12 features; the policy has width 512"):
        TextEmbedding(dim=8, known=["go"], model=str(encoder), width=512)(numbers)
    with pytest.raises(ValueError, match=r"transformers cannot load a text encoder"):
        TextEmbedding(dim=8, known=["go"], model=str(tmp_path), width=512)(numbers)


def test_episodes_without_an_instruction_have_no_token(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", 2, ("", "go"))
    assert Statistics.of_episodes(store.episodes()).instructions == ("go",)
    batch = Windows(store, chunk=4).batch([0, 6])
    tokens, present = TaskEmbedding(dim=8, known=["go"])(torch.from_numpy(batch[NUMBER_KEY]))
    assert tokens.shape == (2, 1, 8)
    assert present[:, 0].tolist() == [False, True]
