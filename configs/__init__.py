"""Hydra configuration files; a package only because `pkg://` asks for one."""
