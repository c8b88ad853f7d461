"""Instructions as tokens: a learned embedding per known task, or a frozen text encoder."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import instruction_number
from stringline.encoders.positions.precision import without_autocast
from stringline.encoders.pretrained.transformers_models import load_text_model, pooled
from stringline.policies.observation.interfaces import Instruction


class TaskEmbedding(Instruction):
    """One learned token per text of the training data."""

    rows = "table"

    def __init__(
        self, *, dim: int, known: Sequence[str], names: Sequence[str] | None = None
    ) -> None:
        """Initialises the tokens.

        Args:
            dim: Width of the tokens.
            known: The texts of the data.
            names: The texts with a token, such as those of future data; if None, those of the data.
        """
        super().__init__(known if names is None else names)
        for text in known:
            if text not in self.names:
                raise unknown_name("instruction among the names", text, self.names)
        self.table = nn.Parameter(0.02 * torch.randn(len(self.names), dim))

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay."""
        return {"table"}

    def _tokens(self) -> Tensor:
        return self.table

    def _add(self, text: str) -> None:
        raise unknown_name("instruction", text, self.names)


class TextEmbedding(Instruction):
    """Features of a text by a frozen encoder of `transformers`, with a learned projection.

    The encoder is not part of the policy, but its features of the training texts are, so a
    checkpoint needs no transformers for those. A new text is encoded when it is first used.
    """

    rows = "features"
    features: Tensor
    added: Tensor

    def __init__(self, *, dim: int, known: Sequence[str], model: str, width: int) -> None:
        """Builds the projection; texts are encoded later.

        Args:
            dim: Width of the tokens.
            known: The texts of the data.
            model: A folder written by `save_pretrained` (encoder and tokenizer), or a name on the
                Hugging Face hub: CLIP's text encoder, T5's encoder, or another one whose averaged
                last layer is meaningful.
            width: Number of features of the text encoder, such as 512.
        """
        super().__init__(known)
        self.model = model
        self.width = width
        self.register_buffer("features", torch.full((len(self.names), width), torch.nan))
        self.register_buffer("added", torch.empty(0, width), persistent=False)
        self.project = nn.Linear(width, dim)
        self._filled = False

    def _tokens(self) -> Tensor:
        if not self._filled:
            # Not a decorator: it would import the compiler at the start of every command, which
            # takes over a second.
            torch.compiler.disable(self._fill)()  # type: ignore[no-untyped-call]
        token: Tensor = self.project(
            functional.layer_norm(torch.cat((self.features, self.added)), (self.width,))
        )
        return token

    def _fill(self) -> None:
        """Encodes the texts of the data, unless a checkpoint has their features."""
        if bool(self.features.isnan().any()):
            self.features.copy_(self._encoded(self.names))
        self._filled = True

    def _add(self, text: str) -> None:
        try:
            features = self._encoded([text])
        except ValueError as error:
            raise ValueError(
                f"{unknown_name('instruction', text, self.names)} New ones cannot be encoded: "
                f"{error}"
            ) from error
        self.added = torch.cat((self.added, features.to(self.added)))
        self._numbers.append(instruction_number(text))

    def _encoded(self, texts: Sequence[str]) -> Tensor:
        """Returns features (texts, width)."""
        # Training draws and computes as without this call.
        with torch.random.fork_rng(devices=()), without_autocast(self.features):
            features = TextEncoder(self.model)(texts)
        if features.shape[1] != self.width:
            raise ValueError(
                f"{self.model!r} has {features.shape[1]} features; the policy has width "
                f"{self.width}."
            )
        return features


class TextEncoder:
    """A frozen text encoder."""

    def __init__(self, model: str) -> None:
        """Loads the encoder; `model` as for `TextEmbedding`."""
        self._model = load_text_model(model, _class_of)

    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Returns features (texts, width): the model's pooled output, or the mean over tokens."""
        inputs = self._model.tokenizer(
            list(texts), padding=True, truncation=True, return_tensors="pt"
        )
        return pooled(self._model.network(**inputs), inputs.get("attention_mask"))


# Families whose automatic class would load more than the text encoder.
_LOADERS = {
    "clip": "CLIPTextModel",
    "clip_text_model": "CLIPTextModel",
    "t5": "T5EncoderModel",
    "mt5": "MT5EncoderModel",
}


def _class_of(config: Any) -> tuple[str, None]:
    """Returns the class that loads the text encoder of a configuration, which stays as it is."""
    return _LOADERS.get(str(config.model_type), "AutoModel"), None


InstructionFactory = Callable[..., Instruction]
"""Makes an instruction, given `dim` and `known`, the texts of the data."""
