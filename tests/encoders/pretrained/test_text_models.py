"""Text encoders of transformers: their outputs, what is stored of them, and messages."""

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
import torch

from stringline.encoders.pretrained.initial_weights import declare_torchvision_operators
from stringline.encoders.pretrained.transformers_models import (
    StoredText,
    load_text_model,
    pooled,
    without_reports,
)


def transformers() -> Any:
    """Returns transformers."""
    declare_torchvision_operators()  # Before transformers imports torchvision.
    return importlib.import_module("transformers")


def save_t5(folder: Path) -> Any:
    """Saves a tiny T5 with random weights and a tokenizer of two words, and returns it."""
    vocabulary = {"<pad>": 0, "<unk>": 1, "go": 2, "on": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    library = transformers()
    library.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = library.T5Config(
        vocab_size=4, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, pad_token_id=0
    )
    network = library.T5EncoderModel(config).eval()
    network.save_pretrained(folder)
    return network


def encoder_of(config: Any) -> tuple[str, Any]:
    """Returns the class of the text encoder."""
    assert config.model_type == "t5"
    return "T5EncoderModel", config


def test_a_network_without_a_pooled_output_has_the_mean_of_its_tokens(tmp_path: Path) -> None:
    network = save_t5(tmp_path)
    found = load_text_model(str(tmp_path), encoder_of)
    assert found.missing == ()
    inputs = found.tokenizer(["go", "on go on"], padding=True, return_tensors="pt")
    with torch.no_grad():
        features = pooled(found.network(**inputs), inputs["attention_mask"])
        alone = network(input_ids=torch.tensor([[2]])).last_hidden_state
    torch.testing.assert_close(features[:1], alone[:, 0])
    states = torch.randn(2, 3, 4)
    without = pooled(SimpleNamespace(last_hidden_state=states), None)
    torch.testing.assert_close(without, states.mean(dim=1))
    both = SimpleNamespace(text_embeds=states[:, 0], pooler_output=states[:, 1])
    assert torch.equal(pooled(both, None), states[:, 0]), "projected features come first"


def test_what_is_stored_makes_the_same_network_with_other_weights(tmp_path: Path) -> None:
    save_t5(tmp_path / "whole")
    whole = load_text_model(str(tmp_path / "whole"), encoder_of)
    for name, content in whole.files().items():
        assert not name.endswith(".safetensors")
        (tmp_path / "stored" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "stored" / name).write_bytes(content)
    stored = load_text_model(StoredText(tmp_path / "stored"), encoder_of)
    stored.network.load_state_dict(whole.network.state_dict())
    assert stored.tokenizer.get_vocab() == whole.tokenizer.get_vocab()
    tokens = torch.tensor([[2, 3]])
    with torch.no_grad():
        expected = whole.network(input_ids=tokens).last_hidden_state
        torch.testing.assert_close(stored.network(input_ids=tokens).last_hidden_state, expected)
    with pytest.raises(ValueError, match="transformers cannot load a text encoder .*nothing"):
        load_text_model(StoredText(tmp_path / "nothing"), encoder_of)


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    save_t5(tmp_path)
    for file in tmp_path.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ValueError, match="cannot load a text encoder"):
        load_text_model(str(tmp_path), encoder_of)


def test_reports_are_off_in_a_block_only() -> None:
    logging = transformers().utils.logging
    before = (logging.get_verbosity(), logging.is_progress_bar_enabled())
    with without_reports():
        assert logging.get_verbosity() == logging.ERROR
        assert not logging.is_progress_bar_enabled()
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
