"""Looks: textures, materials and lights of worlds, and what each episode draws of them."""
