"""Logs: structlog as JSON lines, one chain for our own events and for what libraries log. Never text, tokens or native payloads.

Our events carry ids and codes by construction. A library's record is reduced to logger, level and, for the server's own life, its message:
nobody here can promise what other libraries put into theirs.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final, TextIO

import structlog

_TRUSTED_LOGGERS: Final = frozenset({"uvicorn.error"})


def configure_logging(stream: TextIO | None = None, *, level: int = logging.INFO) -> None:
    """Send every log of this process to `stream` (standard error) as JSON lines."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.add_logger_name, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name, _reduce_foreign],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.JSONRenderer(ensure_ascii=True)],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.propagate = name != "uvicorn.access"


def _reduce_foreign(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if event.get("logger") not in _TRUSTED_LOGGERS:
        event["event"] = "library_log"
    for key in ("exc_info", "stack_info", "positional_args"):
        event.pop(key, None)
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        record.exc_info = None
        record.exc_text = None
    return event
