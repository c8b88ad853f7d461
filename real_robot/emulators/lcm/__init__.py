"""Emulated KUKA arms behind an emulated drake-iiwa-driver, which speaks LCM."""
