"""HTTP: one route table (`routes`), endpoints that authenticate, parse, call one use case and render, and the chat page. No rules here."""
