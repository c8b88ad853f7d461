"""The sigmoid loss of two towers, for images and texts."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from stringline.datasets.contract.argument_checks import Range
from stringline.encoders.positions.precision import at_least_float32, without_autocast

INITIAL_LOG_TEMPERATURE = math.log(10.0)
_BATCHES = Range(least=2, whole=True)


def sigmoid_loss(
    images: Tensor,
    texts: Tensor,
    log_temperature: Tensor | float,
    bias: Tensor | float,
    positives: Tensor | None = None,
) -> Tensor:
    """Returns the loss of a batch, a number.

    X. Zhai et al., "Sigmoid loss for language image pre-training", ICCV 2023, arXiv 2303.15343:
    -(1/n) sum_ij log sigmoid(z_ij (t x_i . y_j + b)) with z = 1 for pairs and -1 for others.

    Args:
        images: (n, d) outputs of the image tower, of any length above 0.
        texts: (n, d) outputs of the text tower.
        log_temperature: Logarithm of t.
        bias: b; `initial_bias` is its start.
        positives: (n, n) bool, which texts hold for which images, such as `equal_captions`; None:
            text i holds for image i only.

    Raises:
        ValueError: The shapes differ.
    """
    n = images.shape[0]
    if images.shape != texts.shape or images.ndim != 2:
        raise ValueError(
            f"Images have the shape {tuple(images.shape)} and texts {tuple(texts.shape)}; allowed: "
            f"the same (n, d)."
        )
    if positives is None:
        positives = torch.eye(n, dtype=torch.bool, device=images.device)
    if positives.shape != (n, n) or positives.dtype != torch.bool:
        raise ValueError(
            f"positives are {positives.dtype} of the shape {tuple(positives.shape)}; allowed: bool "
            f"of the shape {(n, n)}."
        )
    with without_autocast(images):
        x = functional.normalize(at_least_float32(images), dim=-1)
        y = functional.normalize(at_least_float32(texts), dim=-1)
        logits = torch.as_tensor(log_temperature).exp() * (x @ y.mT) + bias
        signs = torch.where(positives, 1.0, -1.0).to(logits.dtype)
        return -functional.logsigmoid(signs * logits).sum() / n


def equal_captions(captions: Sequence[str]) -> Tensor:
    """Returns which captions of a batch are equal, (n, n) bool."""
    numbers = {caption: index for index, caption in enumerate(captions)}
    index = torch.tensor([numbers[caption] for caption in captions], dtype=torch.long)
    return index[:, None] == index


def initial_bias(batch_size: int) -> float:
    """Returns -log(n - 1), at which the loss of random towers is smallest for n examples.

    The published -10 suits batches of 8,000 and more; with small ones the towers would first have
    to learn the bias.

    Raises:
        ValueError: A batch has fewer than two examples.
    """
    _BATCHES.check(batch_size=batch_size)
    return -math.log(batch_size - 1)
