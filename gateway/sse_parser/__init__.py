"""Sans-IO reading of upstream event streams: bytes in, bounded and strictly checked values out. No socket, no clock, no text to a log.

guard (bytes to frames) → decode (frame to typed event) → sequence (the protocol's order and ids) → projection (the visible items);
parser is the façade that everybody else uses.
"""
