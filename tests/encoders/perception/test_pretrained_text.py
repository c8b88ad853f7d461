"""Towers of CLIP and SigLIP have transformers' features, train, and come with their checkpoint."""

import importlib
import shutil
import string
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from omegaconf import DictConfig, OmegaConf
from tests.encoders.perception.conftest import SIDE, encoder
from tests.encoders.perception.test_detectors import scene

from stringline.datasets.command.configuration import Configuration
from stringline.datasets.images.image_store import ImageStore, ImageWriter
from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.perception_data import PerceptionData
from stringline.encoders.perception.perception_network import (
    Examples,
    PerceptionNetwork,
    load_perception,
)
from stringline.encoders.perception.perception_run import (
    InitialNetwork,
    PerceptionSettings,
    run_perception,
)
from stringline.encoders.perception.text_tower import PretrainedTextTower, TextTower
from stringline.encoders.perception.two_towers import TwoTowers, TwoTowersSettings
from stringline.encoders.pretrained.initial_weights import declare_torchvision_operators
from stringline.encoders.pretrained.transformers_models import EXAMPLE
from stringline.encoders.training.checkpoint import build
from stringline.encoders.training.optimisation import FACTOR, parameter_groups

CONFIGS = Path(__file__).parents[3] / "configs"
WORDS = "a ball box on the floor"
TEXTS = ("a ball", "a box on the floor", "the ball on a box on the floor")
PLACES = {"clip": 12, "siglip": 12, "siglip2": 40}
SMALL = (
    "head.image_encoder.dim=16",
    "head.image_encoder.depth=1",
    "head.image_encoder.heads=2",
    "head.image_encoder.embedding.patch=4",
    "coordinates=metric",
    "depth=channel",
    "trainer.batch_size=3",
    "trainer.precision=no",
    "trainer.steps=2",
)
DETECTION = ("head=detect3d", "head.least_pixels=10")


def composed(*options: str) -> DictConfig:
    """Returns the configuration of a command line."""
    return Configuration(CONFIGS, "perceive", "perceive").composed(options)


def transformers() -> Any:
    """Returns transformers."""
    declare_torchvision_operators()  # Before transformers imports torchvision.
    return importlib.import_module("transformers")


def save_tokenizer(folder: Path, words: str = WORDS, **settings: Any) -> dict[str, int]:
    """Saves a tokenizer of words between a start and an end token, and returns its vocabulary."""
    names = ["<pad>", "<unk>", "<start>", *dict.fromkeys(words.split()), "<end>"]
    vocabulary = {name: number for number, name in enumerate(names)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        "<start> $A <end>",
        special_tokens=[(name, vocabulary[name]) for name in ("<start>", "<end>")],
    )
    transformers().PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<start>",
        eos_token="<end>",
        model_max_length=12,
        **settings,
    ).save_pretrained(folder)
    return vocabulary


def save_letters(folder: Path) -> dict[str, int]:
    """Saves a tokenizer of letters of SigLIP 2, with a mask and padding on the left."""
    names = ["<pad>", "<end>", "<start>", "<unk>", "<mask>", "▁", *string.ascii_lowercase, "ba"]
    vocabulary = {name: number for number, name in enumerate(names)}
    transformers().Siglip2Tokenizer(
        vocab=vocabulary,
        merges=[("b", "a")],
        bos_token="<start>",
        eos_token="<end>",
        model_max_length=PLACES["siglip2"],
    ).save_pretrained(folder)
    return vocabulary


def make_network(kind: str, vocabulary: dict[str, int]) -> Any:
    """Returns a tiny network with random weights: clip, siglip or siglip2."""
    torch.manual_seed(0)
    layers = {"intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {
        **layers,
        "vocab_size": len(vocabulary),
        "hidden_size": 12,
        "max_position_embeddings": PLACES[kind],
        "pad_token_id": vocabulary["<pad>"],
        "bos_token_id": vocabulary["<start>"],
        "eos_token_id": vocabulary["<end>"],
    }
    size = {"num_patches": 4} if kind == "siglip2" else {"image_size": 8}
    vision = {**layers, **size, "hidden_size": 8, "patch_size": 4}
    family = {"clip": "CLIP", "siglip": "Siglip", "siglip2": "Siglip2"}[kind]
    if kind == "clip":
        projected = {"projection_dim": 6}
    else:
        text["projection_size"] = 10
        projected = {}
    library = transformers()
    configuration = getattr(library, f"{family}Config")
    made = configuration(text_config=text, vision_config=vision, **projected)
    return getattr(library, f"{family}Model")(made).eval()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of tiny networks with their tokenizers, by kind."""
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in PLACES}
    vocabularies = {
        "clip": save_tokenizer(folders["clip"]),
        "siglip": save_tokenizer(folders["siglip"], model_input_names=["input_ids"]),
        "siglip2": save_letters(folders["siglip2"]),
    }
    for kind, folder in folders.items():
        make_network(kind, vocabularies[kind]).save_pretrained(folder)
    return folders


@pytest.mark.parametrize(("head", "length"), [("retrieve", 64), ("detect2d", 16), ("detect3d", 16)])
def test_the_tower_is_chosen_by_name(head: str, length: int) -> None:
    """The default has the arguments of earlier checkpoints."""
    own = composed(f"head={head}").head.text
    assert own == {
        "_target_": "stringline.TextTower",
        "_partial_": True,
        "dim": 128,
        "depth": 2,
        "heads": 4,
        "length": length,
        "truncate": False,
    }
    options = ("head.text.length=5", "head.text.truncate=true")
    chosen = composed(f"head={head}", "head/text=pretrained", *options).head.text
    assert chosen == {
        "_target_": "stringline.PretrainedTextTower",
        "_partial_": True,
        "model": EXAMPLE,
        "frozen": True,
        "length": 5,
        "truncate": True,
    }


def tower(folder: Path, **settings: Any) -> PretrainedTextTower:
    """Returns the tower of a folder."""
    return PretrainedTextTower(model=str(folder), **settings)


def features(of: PretrainedTextTower, texts: Sequence[str] = TEXTS) -> torch.Tensor:
    """Returns the features of texts."""
    numbers = torch.from_numpy(np.stack([of.numbers(text) for text in texts]))
    with torch.no_grad():
        found: torch.Tensor = of.eval()(numbers)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(PLACES))
def test_features_are_those_of_transformers(models: dict[str, Path], kind: str) -> None:
    library = transformers()
    found = tower(models[kind])
    tokenizer = library.AutoTokenizer.from_pretrained(models[kind])
    padding = True if kind == "clip" else "max_length"
    inputs = tokenizer(list(TEXTS), padding=padding, return_tensors="pt")
    assert ("attention_mask" in inputs) == (kind != "siglip")
    network = library.AutoModel.from_pretrained(models[kind]).eval()
    with torch.no_grad():
        wanted = network.get_text_features(**inputs).pooler_output
    assert found.dim == wanted.shape[1] == (6 if kind == "clip" else 10)
    torch.testing.assert_close(features(found), wanted)
    torch.testing.assert_close(features(found, TEXTS[:1])[0], wanted[0])
    assert features(found).std(dim=0).min() > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "attribute"),
    [("CLIPTextModel", "pooler_output"), ("CLIPTextModelWithProjection", "text_embeds")],
)
def test_text_towers_of_clip_alone_have_their_own_output(
    models: dict[str, Path], tmp_path: Path, name: str, attribute: str
) -> None:
    library = transformers()
    folder = Path(shutil.copytree(models["clip"], tmp_path / "text"))
    whole = library.AutoConfig.from_pretrained(folder)
    whole.text_config.projection_dim = 6
    network = getattr(library, name).from_pretrained(folder, config=whole.text_config).eval()
    network.save_pretrained(folder)
    inputs = library.AutoTokenizer.from_pretrained(folder)(
        list(TEXTS), padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        wanted = getattr(network(**inputs), attribute)
    torch.testing.assert_close(features(tower(folder)), wanted)


def test_the_length_changes_no_feature_of_a_text_that_fits(models: dict[str, Path]) -> None:
    for kind in ("clip", "siglip"):
        short = tower(models[kind], length=5)
        assert len(short.numbers("a ball")) == (5 if kind == "clip" else 12)
        torch.testing.assert_close(
            features(short, TEXTS[:1]), features(tower(models[kind]), TEXTS[:1])
        )


def test_longer_texts_are_refused_or_lose_their_end(models: dict[str, Path]) -> None:
    refusing = tower(models["clip"], length=5)
    with pytest.raises(
        ValueError,
        match=r"The text 'a box on the floor' has 7 tokens; allowed: at most 5. Raise "
        r"head.text.length \(up to 12\), or set head.text.truncate=true.$",
    ):
        refusing.numbers(TEXTS[1])
    with pytest.raises(ValueError, match=r"at most 12. Set head.text.truncate=true.$"):
        tower(models["clip"]).numbers("a ball on the floor on a box on the floor")
    with pytest.raises(ValueError, match=r"The text is ' '; allowed: at least one character."):
        refusing.numbers(" ")
    cut = tower(models["clip"], length=5, truncate=True)
    assert cut.is_longer(TEXTS[1])
    assert not cut.is_longer(TEXTS[0])
    assert cut.numbers(TEXTS[1]).tolist() == cut.numbers("a box on").tolist(), "the end is kept"
    for length in (2, 13):
        with pytest.raises(
            ValueError, match=rf"length must be an integer from 3 to 12 \(got {length}\)"
        ):
            tower(models["clip"], length=length)


def test_threads_may_read_texts_at_the_same_time(models: dict[str, Path]) -> None:
    """Changing the truncation of a tokenizer fails while another thread uses it."""
    for truncate in (True, False):
        shared = tower(models["clip"], length=9, truncate=truncate)
        texts = [*TEXTS[:2], *(TEXTS[2:] if truncate else ())] * 200
        expected = [shared.numbers(text).tolist() for text in texts]
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(shared.numbers, texts))
        assert [numbers.tolist() for numbers in found] == expected


def test_a_frozen_tower_is_not_trained_and_stays_in_evaluation_mode(
    models: dict[str, Path],
) -> None:
    frozen = towers(models["clip"]).train()
    trained = towers(models["clip"], frozen=False).train()
    assert isinstance(frozen.text, PretrainedTextTower)
    assert isinstance(trained.text, PretrainedTextTower)
    assert not frozen.text.network.training
    assert trained.text.network.training
    assert not any(parameter.requires_grad for parameter in frozen.text.parameters())

    def factors(network: TwoTowers) -> set[object]:
        return {group[FACTOR] for group in parameter_groups(network, 0.1, {"text": 0.25})}

    assert factors(frozen) == {1.0}
    assert factors(trained) == {1.0, 0.25}
    assert trained.text.no_weight_decay() == {
        f"network.text_model.embeddings.{name}_embedding.weight" for name in ("token", "position")
    }


def test_a_frozen_tower_encodes_each_text_once(models: dict[str, Path]) -> None:
    frozen = tower(models["clip"])
    encoded: list[int] = []
    frozen.network.register_forward_hook(lambda *given: encoded.append(1))
    found = frozen.features((*TEXTS, TEXTS[0]))
    assert torch.allclose(found, features(frozen, (*TEXTS, TEXTS[0])), atol=1e-6)
    encoded.clear()
    assert torch.equal(frozen.features(TEXTS), found[: len(TEXTS)])
    assert not encoded
    changed = {name: value + 0.1 for name, value in frozen.state_dict().items()}
    frozen.load_state_dict(changed)
    assert not torch.allclose(frozen.features(TEXTS), found[: len(TEXTS)], atol=1e-3)
    trained = tower(models["clip"], frozen=False)
    assert trained.features(TEXTS).requires_grad


def towers(folder: Path, **settings: Any) -> TwoTowers:
    """Returns small towers with the text tower of a folder."""

    def text(tokeniser: str) -> PretrainedTextTower:
        return tower(folder, tokeniser=tokeniser, **settings)

    chosen = TwoTowersSettings(image_encoder=encoder(), text=text, batch_size=3, width=8)
    return TwoTowers(chosen, ImageContract(height=SIDE, width=SIDE))


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    """A store of six scenes with captions."""
    path = tmp_path_factory.mktemp("store") / "scenes"
    with ImageWriter(path) as writer:
        for seed in range(6):
            image = scene(seed)
            caption = f"a {image.objects[0].name} on the floor"
            writer.add(replace(image, room=f"room {seed}", captions=(caption,)))
    return ImageStore(path)


def train(
    images: ImageStore, folder: Path, *options: str, initial: InitialNetwork | None = None
) -> PerceptionNetwork:
    """Trains the network of a command line, and returns that of its checkpoint."""
    chosen = composed(*SMALL, *options)
    head = OmegaConf.to_container(chosen.head, resolve=True)
    trainer = OmegaConf.to_container(chosen.trainer, resolve=True)
    assert isinstance(head, dict)
    model = {str(key): value for key, value in head.items()}
    needs = {"captions", "texts"} if model["_target_"] == "stringline.TwoTowers" else {"names"}
    data = PerceptionData.of(images, "room", 0.3, 0, needs | {"texts"})
    settings = PerceptionSettings(image_size=SIDE, initial=initial)
    run_perception(model, data, build(trainer), folder, settings)
    return load_perception(folder / "checkpoint")


def by_text(folder: Path, *options: str) -> tuple[str, ...]:
    """Returns the options of a text tower of a folder."""
    return (
        "head/text=pretrained",
        "head.text.length=null",
        f"head.text.model={folder}",
        *options,
    )


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        ("clip", ("head=retrieve",)),
        ("clip", DETECTION),
        ("siglip", DETECTION),
        ("siglip2", ("head=retrieve",)),
    ],
)
def test_a_checkpoint_comes_with_its_tower(
    models: dict[str, Path], scenes: ImageStore, tmp_path: Path, kind: str, head: tuple[str, ...]
) -> None:
    """A frozen tower stays equal, and the checkpoint needs no other folder."""
    folder = Path(shutil.copytree(models[kind], tmp_path / "model"))
    network = train(scenes, tmp_path / "run", *head, *by_text(folder))
    assert isinstance(network.text, PretrainedTextTower)
    assert torch.equal(features(network.text), features(tower(folder)))
    measured = network.measure(Examples(scenes, range(6), network.contract)).values
    shutil.rmtree(folder)
    moved = Path(shutil.move(tmp_path / "run" / "checkpoint", tmp_path / "moved"))
    again = load_perception(moved)
    assert isinstance(again.text, PretrainedTextTower)
    assert torch.equal(features(again.text), features(network.text))
    assert again.measure(Examples(scenes, range(6), again.contract)).values == measured
    assert again.text.files().keys() == network.text.files().keys()
    (moved / "text" / "config.json").unlink()
    with pytest.raises(
        ValueError, match=r"lacks text/config.json of its text tower. Copy the whole folder"
    ):
        load_perception(moved)


@pytest.mark.slow
def test_a_tower_is_trained_at_its_own_rate(
    models: dict[str, Path], scenes: ImageStore, tmp_path: Path
) -> None:
    options = by_text(models["clip"], "head=retrieve", "head.text.frozen=false")
    rate = "trainer.learning_rate_factors={text: 0.001}"
    slow = train(scenes, tmp_path / "slow", *options, rate).text
    fast = train(scenes, tmp_path / "fast", *options).text
    assert isinstance(slow, PretrainedTextTower)
    assert isinstance(fast, PretrainedTextTower)
    initial = features(tower(models["clip"]))
    change = (features(slow) - initial).abs().max()
    assert 0 < change < 0.02 * (features(fast) - initial).abs().max()


@pytest.mark.slow
def test_a_detector_begins_with_the_trained_tower_of_retrieval(
    models: dict[str, Path], scenes: ImageStore, tmp_path: Path
) -> None:
    trained = by_text(models["clip"], "head=retrieve", "head.text.frozen=false")
    retrieval = train(scenes, tmp_path / "retrieval", *trained)
    initial = InitialNetwork(tmp_path / "retrieval" / "checkpoint")
    own = (*DETECTION, *by_text(models["clip"]))
    detector = train(scenes, tmp_path / "boxes", *own, initial=initial)
    assert isinstance(retrieval.text, PretrainedTextTower)
    assert isinstance(detector.text, PretrainedTextTower)
    assert torch.equal(features(detector.text), features(retrieval.text))

    other = Path(shutil.copytree(models["clip"], tmp_path / "other"))
    save_tokenizer(other, "the floor on box ball a")
    with pytest.raises(
        ValueError,
        match=r"has 10 tokens, which differ from those of this network; .*include=\[image_encoder]",
    ):
        train(scenes, tmp_path / "x", *DETECTION, *by_text(other), initial=initial)
    with pytest.raises(ValueError, match=r"do not fit this model: text\..*exclude=mismatched"):
        train(scenes, tmp_path / "x", *DETECTION, initial=initial)
    bytes_only = train(scenes, tmp_path / "bytes", "head=retrieve")
    assert isinstance(bytes_only.text, TextTower)
    from_bytes = InitialNetwork(tmp_path / "bytes" / "checkpoint")
    with pytest.raises(ValueError, match=r"do not fit this model: text\..*exclude=mismatched"):
        train(scenes, tmp_path / "x", *own, initial=from_bytes)


def test_what_is_no_text_tower_is_named(models: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"There is no folder .*none. Give a folder with an enc"):
        tower(tmp_path / "none")
    bare = tmp_path / "bare"
    network = make_network("clip", save_tokenizer(tmp_path))
    network.save_pretrained(bare)
    with pytest.raises(ValueError, match=r"cannot load .*bare': the folder has no tokenizer"):
        tower(bare)
    vision = tmp_path / "vision"
    save_tokenizer(vision)
    with pytest.raises(ValueError, match="transformers cannot load a text encoder .*vision', nei"):
        tower(vision)
    network.vision_model.save_pretrained(vision)
    with pytest.raises(
        ValueError,
        match="no text tower for the model type 'clip_vision_model'. Did you mean 'clip_text_mod",
    ):
        tower(vision)
    more = Path(shutil.copytree(models["clip"], tmp_path / "more"))
    save_tokenizer(more, f"{WORDS} and more")
    with pytest.raises(ValueError, match="tokenizer of .*more' has 12 tokens; allowed: at most 10"):
        tower(more)


def test_weights_that_a_folder_lacks_are_named(models: dict[str, Path], tmp_path: Path) -> None:
    lacking = Path(shutil.copytree(models["clip"], tmp_path / "lacking"))
    network = transformers().CLIPModel.from_pretrained(lacking)
    state = {k: v for k, v in network.state_dict().items() if k != "text_projection.weight"}
    network.save_pretrained(lacking, state_dict=state)
    with pytest.raises(ValueError, match="lacks weights of the text tower: text_projection.weight"):
        tower(lacking)


def test_the_missing_library_is_named(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        ValueError,
        match=r"needs transformers, which is not installed. Run: pip install .stringline\[text\]",
    ):
        tower(models["clip"])
