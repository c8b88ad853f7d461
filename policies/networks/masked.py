"""The mean error of a batch of chunks, in which actions beyond the end of an episode do not count."""

from torch import Tensor


def masked_mean(error: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean over everything that counts, a scalar; 0 if nothing does.

    Args:
        error: (B, K, T, A) of K draws per observation.
        mask: (B, T) False beyond the end of the episode.

    Raises:
        ValueError: The two do not belong together.
    """
    batch, draws, chunk, action_dim = error.shape
    if mask.shape != (batch, chunk):
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}; allowed for errors {tuple(error.shape)}: "
            f"{(batch, chunk)}."
        )
    weight = mask[:, None, :, None].to(error.dtype)
    return (error * weight).sum() / (weight.sum() * draws * action_dim).clamp(min=1)
