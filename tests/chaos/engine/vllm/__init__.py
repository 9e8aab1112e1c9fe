"""A double of vLLM for chaos: see entrypoints/cli/main.py."""
