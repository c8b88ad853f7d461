"""Remote policies: a WebSocket server, a client without torch, and a client for openpi's servers."""
