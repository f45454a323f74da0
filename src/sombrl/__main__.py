"""`python -m sombrl`."""

from sombrl.cli.main import main

if __name__ == "__main__":
    main()
