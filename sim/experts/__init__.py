"""Scripted experts: they see the true poses and command joints."""
