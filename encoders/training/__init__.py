"""The training loop: steps, monitoring, checkpoints and resuming."""
