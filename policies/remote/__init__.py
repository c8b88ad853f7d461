"""Policies over the network: protocol, server and clients, those of openpi included."""
