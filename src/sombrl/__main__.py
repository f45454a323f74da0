"""`python -m sombrl`."""

from sombrl.cli import main

if __name__ == "__main__":
    main()
