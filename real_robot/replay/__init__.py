"""Replay of the recorded bytes of an incident log into emulated arms."""
