"""Vision transformers that others have trained on pictures, taken from timm and given places."""
