"""Learned policies: diffusion, flow, energy and ACT, on one base class."""
