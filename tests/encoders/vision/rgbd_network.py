"""Tokens of all cameras through one vision transformer, for tests."""

from collections.abc import Mapping

from torch import Tensor, nn

from stringline.encoders.vision.rgbd import RgbdTokens, Tokens
from stringline.encoders.vision.vit import VisionTransformer


class RgbdVisionTransformer(nn.Module):
    """Tokens of all cameras through one vision transformer."""

    def __init__(self, tokenise: RgbdTokens, blocks: VisionTransformer) -> None:
        super().__init__()
        self.tokenise = tokenise
        self.blocks = blocks

    def forward(self, observation: Mapping[str, Tensor]) -> Tokens:
        """Returns encoded tokens, one per patch, for a batch of observations."""
        tokens: Tokens = self.tokenise(observation)
        encoded = self.blocks(
            tokens.features, tokens.coordinates, tokens.has_position, tokens.present
        )
        features: Tensor = self.tokenise.fusion(encoded)
        count = features.shape[1]
        present = None if tokens.present is None else tokens.present[:, :count]
        return Tokens(
            features, tokens.coordinates[:, :count], tokens.has_position[:, :count], present
        )
