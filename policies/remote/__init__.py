"""Policies that run elsewhere: a server, a client without torch, and a client for openpi's servers."""
