"""A small world with the interface of DeepMind's aloha_sim 1.0.0, without meshes."""
