"""matrixrun: compare an engine with speculative decoding on against the same engine with it off."""

__version__ = "0.1.0"
