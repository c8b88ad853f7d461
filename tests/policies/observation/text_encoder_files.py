"""A small text encoder on disk."""

from collections.abc import Sequence
from pathlib import Path

import tokenizers
import torch
import transformers

from stringline.encoders.pretrained.initial_weights import declare_torchvision_operators


def save_text_encoder(folder: Path, texts: Sequence[str], width: int) -> None:
    """Writes an untrained CLIP text encoder, with a tokenizer for the words of texts."""
    declare_torchvision_operators()  # Before transformers imports torchvision.
    words = sorted({word for text in texts for word in text.split()})
    # The end token is the last one: with an end token of number 2 transformers returns the token
    # of the highest number.
    vocabulary = {word: number for number, word in enumerate(["<pad>", "<unk>", *words, "<end>"])}
    end = vocabulary["<end>"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        "$A <end>", special_tokens=[("<end>", end)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="<end>",
        model_max_length=16,
    ).save_pretrained(folder)
    torch.manual_seed(0)
    transformers.CLIPTextModel(
        transformers.CLIPTextConfig(
            vocab_size=len(vocabulary),
            hidden_size=width,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=16,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=end,
        )
    ).save_pretrained(folder)
