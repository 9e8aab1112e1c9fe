"""`python -m matrixrun`, the entry point that `ray job submit` uses."""

from matrixrun.cli import main

if __name__ == "__main__":
    main()
