"""Emulated KUKA arms behind an emulated drake-iiwa-driver, over LCM."""
