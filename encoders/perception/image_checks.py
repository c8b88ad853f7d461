"""Checks of a run of perception before its training, which may take hours."""

from dataclasses import replace

import torch

from stringline.encoders.perception.perception_data import PerceptionData
from stringline.encoders.perception.perception_network import Examples, PerceptionNetwork
from stringline.encoders.perception.studies import Study

_TRIED = 2


def check_images(network: PerceptionNetwork, data: PerceptionData) -> None:
    """Checks all images of a run; see `PerceptionNetwork.check` and `has_targets`.

    Raises:
        ValueError: Images do not fit the network, or no image of a side has targets.
    """
    for side, indices in (("training", data.train), ("test", data.split.test)):
        reasons = {}
        for index in indices:
            try:
                network.check(data.images[index])
            except ValueError as error:
                reasons[index] = str(error)
        if reasons:
            first = min(reasons)
            raise ValueError(
                f"{len(reasons)} of {len(indices)} {side} images do not fit the network. Image "
                f"{first}: {reasons[first]}"
            )
        if not any(network.has_targets(data.images[index]) for index in indices):
            raise ValueError(
                f"None of the {len(indices)} {side} images has {network.target}; allowed: at "
                f"least one."
            )


def try_measurement(network: PerceptionNetwork, examples: Examples, study: Study | None) -> None:
    """Measures a few images, so that an impossible measurement fails before the training.

    Raises:
        ValueError: The images do not fit the measurement or the study.
    """
    few = replace(examples, indices=examples.indices[:_TRIED])
    with torch.random.fork_rng(devices=[]):
        network.measure(few)
        if study is not None:
            study.measure(network, few)
