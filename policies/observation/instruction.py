"""What was asked for, as tokens of the memory: a learned embedding for each known task, or the meaning of a text."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.contract.instructions import NOTHING_SAID, instruction_number
from stringline.encoders.positions.precision import values_are_hidden, without_autocast
from stringline.encoders.pretrained.torchvision_operators import declare_torchvision_operators

EXAMPLE = "openai/clip-vit-base-patch32"


class Instruction(nn.Module, ABC):
    """Turns numbers of texts (`datasets/contract/instructions.py`) into tokens.

    Attributes:
        names: The texts that are known, in the order of the rows of what was learned for them.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Keeps the texts.

        Raises:
            ValueError: There is none, or one comes twice.
        """
        super().__init__()
        self.names = tuple(names)
        if not self.names or len(set(self.names)) < len(self.names) or "" in self.names:
            raise ValueError(
                f"The known instructions are {list(names)}; allowed: different texts, at least "
                f"one. They come from the "
                "episodes; stringline-data relabel gives one to episodes that have none."
            )
        self._numbers = [instruction_number(name) for name in self.names]

    def number(self, text: str | None) -> int:
        """Returns the number to ask `forward` with.

        Args:
            text: What is asked for; empty: nothing. None: nobody said, which is enough where only
                one text is known.

        Raises:
            ValueError: Nobody said and there is a choice, or the text is not known.
        """
        if text is None and len(self.names) == 1:
            return self._numbers[0]
        if text is None:
            raise ValueError(
                "This policy has to be told what to do: give observations the key 'instruction'. "
                f"It knows: {', '.join(self.names)}."
            )
        number = instruction_number(text)
        if number not in (NOTHING_SAID, *self._numbers):
            self._meet(text)
        return number

    def forward(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Looks up.

        Args:
            numbers: (B,) int64, 0 where nothing is asked for.

        Returns:
            (B, 1, dim) tokens, and (B, 1) bool, which examples have one.

        Raises:
            ValueError: A number belongs to no known text (not looked for while compiling).
        """
        known = torch.tensor(self._numbers, device=numbers.device)
        same = numbers[:, None] == known
        present = numbers[:, None] != NOTHING_SAID
        if not values_are_hidden(numbers) and not bool((same.any(dim=1) | ~present[:, 0]).all()):
            raise ValueError(
                f"An example asks for something that this policy does not know. It knows: "
                f"{', '.join(self.names)}."
            )
        return self._tokens()[same.to(torch.uint8).argmax(dim=1)][:, None], present

    @abstractmethod
    def _tokens(self) -> Tensor:
        """Returns a token for each known text, (texts, dim)."""

    @abstractmethod
    def _meet(self, text: str) -> None:
        """Makes a text known that was not.

        Raises:
            ValueError: That cannot be.
        """


class TaskEmbedding(Instruction):
    """One learned token for each text of the training data."""

    def __init__(
        self, *, dim: int, known: Sequence[str], names: Sequence[str] | None = None
    ) -> None:
        """Starts the tokens.

        Args:
            dim: Width of the tokens.
            known: The texts of the data.
            names: The texts to have a token for, such as those of data to come; None: those of the
                data.

        Raises:
            ValueError: There is no text, or the data have one that is not among the names.
        """
        super().__init__(known if names is None else names)
        for text in known:
            if text not in self.names:
                raise unknown_name("instruction among the names", text, self.names)
        self.table = nn.Parameter(0.02 * torch.randn(len(self.names), dim))

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay would falsify."""
        return {"table"}

    def _tokens(self) -> Tensor:
        return self.table

    def _meet(self, text: str) -> None:
        raise unknown_name("instruction", text, self.names)


class TextEmbedding(Instruction):
    """The meaning of a text by a frozen encoder of `transformers`, and a learned projection of it.

    The encoder is no part of the policy: what it says of the texts of the training data is, so a
    checkpoint acts on those without transformers. A new text is encoded when it is first asked for.
    """

    features: Tensor
    met: Tensor

    def __init__(self, *, dim: int, known: Sequence[str], model: str, width: int) -> None:
        """Makes the projection; nothing is encoded yet.

        Args:
            dim: Width of the tokens.
            known: The texts of the data.
            model: A folder that `save_pretrained` wrote (encoder and tokenizer), or a name on the
                Hugging Face hub: CLIP's text encoder, T5's encoder, or any other whose last layer
                means something on average.
            width: Of its features, such as 512.

        Raises:
            ValueError: There is no text.
        """
        super().__init__(known)
        self.model = model
        self.width = width
        self.register_buffer("features", torch.full((len(self.names), width), torch.nan))
        self.register_buffer("met", torch.empty(0, width), persistent=False)
        self.project = nn.Linear(width, dim)
        self._filled = False

    def _tokens(self) -> Tensor:
        if not self._filled:
            # Here, not as a decorator: that would import the compiler at the start of every
            # command, which takes over a second.
            torch.compiler.disable(self._fill)()  # type: ignore[no-untyped-call]  # torch gives it no types.
        token: Tensor = self.project(
            functional.layer_norm(torch.cat((self.features, self.met)), (self.width,))
        )
        return token

    def _fill(self) -> None:
        """Encodes the texts of the data, unless a checkpoint has brought them."""
        if bool(self.features.isnan().any()):
            self.features.copy_(self._encoded(self.names))
        self._filled = True

    def _meet(self, text: str) -> None:
        try:
            features = self._encoded([text])
        except ValueError as error:
            raise ValueError(
                f"{unknown_name('instruction', text, self.names)} Others cannot be encoded: {error}"
            ) from error
        self.met = torch.cat((self.met, features.to(self.met)))
        self._numbers.append(instruction_number(text))

    def _encoded(self, texts: Sequence[str]) -> Tensor:
        """Returns (texts, width).

        Raises:
            ValueError: transformers is missing, or the model cannot be loaded or has another width.
        """
        with (
            torch.random.fork_rng(devices=()),
            without_autocast(self.features),
        ):  # Training draws and computes as without it.
            features = TextEncoder(self.model)(texts)
        if features.shape[1] != self.width:
            raise ValueError(
                f"{self.model!r} gives {features.shape[1]} features; the policy says width "
                f"{self.width}."
            )
        return features


class TextEncoder:
    """A frozen text encoder."""

    def __init__(self, model: str) -> None:
        """Loads it.

        Args:
            model: See `TextEmbedding`.

        Raises:
            ValueError: transformers is missing, or the model cannot be loaded.
        """
        transformers = _transformers()
        folder = Path(model).expanduser()
        if model.startswith((".", "/", "~")) and not folder.is_dir():
            raise ValueError(
                f"There is no folder {model}. Give one with an encoder and its tokenizer, or a "
                f"name such as {EXAMPLE}."
            )
        source = str(folder) if folder.is_dir() else model
        try:
            self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(source)
            kind = str(transformers.AutoConfig.from_pretrained(source).model_type)
            loaded = getattr(transformers, _LOADERS.get(kind, "AutoModel"))
            self._network: Any = loaded.from_pretrained(source, use_safetensors=True).eval()
        except (OSError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"{model!r} is no text encoder that transformers loads, neither a folder here nor "
                f"a name on the hub ({reason})."
            ) from error

    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Returns (texts, width) features: what the model pools, or else the mean over each text's tokens."""
        inputs = self._tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
        outputs = self._network(**inputs)
        pooled: Tensor | None = getattr(outputs, "pooler_output", None)
        if pooled is not None:
            return pooled.float()
        there = inputs["attention_mask"].unsqueeze(-1).float()
        mean: Tensor = (outputs.last_hidden_state.float() * there).sum(dim=1) / there.sum(dim=1)
        return mean


# Families of which the automatic class would load more than the text's side.
_LOADERS = {
    "clip": "CLIPTextModel",
    "clip_text_model": "CLIPTextModel",
    "t5": "T5EncoderModel",
    "mt5": "MT5EncoderModel",
}


class InstructionFactory(Protocol):
    """Makes the instruction of a memory, as the classes above do."""

    def __call__(self, *, dim: int, known: Sequence[str]) -> Instruction:
        """Returns it for tokens of that width and the texts of the data."""
        ...


def _transformers() -> ModuleType:
    declare_torchvision_operators()  # Some of its models import torchvision.
    try:
        return importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        raise ValueError(
            'This needs transformers, which is not installed. Run: pip install "stringline[text]"'
        ) from error
