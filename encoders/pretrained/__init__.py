"""Pre-trained networks of timm and transformers: images with 3D positions, depth, and texts."""
