"""Where training happens: one file per kind of loop, and the contract they share."""
