"""Parts of every emulator program: control socket, operations, metronome, client."""
