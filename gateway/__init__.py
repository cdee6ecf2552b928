"""A governance gateway in front of upstream AI agents. docs/architecture.md says how it is cut; nothing is imported here."""

__version__ = "0.1.0"
