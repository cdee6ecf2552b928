"""The vocabulary and the pure rules. Standard library only, no IO, imported by everything and importing nothing of ours."""
