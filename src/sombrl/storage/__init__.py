"""Files on disk: the one atomic write, checkpoints, run folders and tables. No agent is known here."""
