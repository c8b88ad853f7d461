"""Inter-process communication: mailboxes in shared memory, heartbeats and signals."""
