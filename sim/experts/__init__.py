"""Scripted experts: they read the true poses and command joints."""
