"""Pre-trained vision networks of timm and transformers, with 3D positions in their attention."""
