"""Networks that generate action chunks: transformer denoiser, U-Net, and ACT's transformer."""
