"""A small world with the interface of DeepMind's aloha_sim 1.0.0: its calls, keys, units, cameras and delays; no meshes."""
