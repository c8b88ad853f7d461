"""The one training loop, what it writes, and how it goes on."""
