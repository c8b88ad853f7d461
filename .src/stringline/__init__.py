"""Stringline: a robotics policy stack whose vision knows where every patch stands in space."""
