"""`python -m strom`."""

from strom.cli.main import main

if __name__ == "__main__":
    main()
