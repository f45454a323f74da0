"""`python -m sombrl`."""

import os
import sys

from sombrl.cli.app import main

if __name__ == "__main__":
    # Python has put the current folder first. It may be a stranger's: only code that the user names comes from it.
    if not sys.flags.safe_path and sys.path[0] == os.getcwd():
        del sys.path[0]
    main()
