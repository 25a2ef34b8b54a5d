"""`python -m evotrainer` is `evotrainer`."""

from evotrainer.cli import main

if __name__ == "__main__":
    main()
