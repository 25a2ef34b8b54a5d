"""`python -m evotrainer.cli` is `evotrainer`."""

from evotrainer.cli import main

if __name__ == "__main__":
    main()
