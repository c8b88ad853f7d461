"""Parts of all emulators: settings, server, control socket, worlds, and client."""
