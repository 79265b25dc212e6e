"""`python -m antiphon` is the `antiphon` command."""

from antiphon.cli.main import main

if __name__ == "__main__":
    main()
