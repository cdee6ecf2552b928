"""MODULE:GRAPH: from a name on the command line to a graph that can be served. Not here: serving it."""

import importlib
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel

AgentGraph: TypeAlias = Pregel[Any, Any, Any, Any]
"""A compiled graph with a checkpointer, whose input has `messages`."""

_logger = logging.getLogger("agent_service")


class AgentDoesNotFitError(Exception):
    """Why this MODULE:GRAPH cannot be served, in words for the person who wrote it."""


async def load_agent(name: str, *, checkpointer: BaseCheckpointSaver[Any], directory: Path) -> AgentGraph:
    """Import, build and check a graph. `directory` is importable first, as it is for `python -m`.

    GRAPH may be a compiled graph, a StateGraph, or a function without arguments (async or not) that returns one.
    """
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise AgentDoesNotFitError(f"{name!r} is not of the form MODULE:GRAPH, for example my_agent:graph")
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # whatever a user's module raises is told to that user
        raise AgentDoesNotFitError(f"cannot import {module_name!r}: {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise AgentDoesNotFitError(f"{module_name!r} has no {attribute!r}")
        found = getattr(found, part)
    return fit(await _built(found, name), name=name, checkpointer=checkpointer)


async def _built(found: object, name: str) -> object:
    if isinstance(found, Pregel | StateGraph) or not callable(found):
        return found
    factory: Callable[[], object | Awaitable[object]] = found
    try:
        inspect.signature(factory).bind()
    except (TypeError, ValueError):
        raise AgentDoesNotFitError(f"{name} is a function that needs arguments; give a graph or a function without") from None
    try:
        made = factory()
        return await made if inspect.isawaitable(made) else made
    except Exception as error:  # whatever a user's module raises is told to that user
        raise AgentDoesNotFitError(f"{name} failed to build its graph: {type(error).__name__}: {error}") from error


def fit(found: object, *, name: str, checkpointer: BaseCheckpointSaver[Any]) -> AgentGraph:
    """The graph with a checkpointer, ours unless it has its own. Raises AgentDoesNotFitError for what cannot be served."""
    if isinstance(found, StateGraph):
        try:
            found = found.compile(checkpointer=checkpointer)
        except ValueError as error:
            raise AgentDoesNotFitError(f"{name} does not compile: {error}") from error
    if not isinstance(found, Pregel):
        raise AgentDoesNotFitError(f"{name} is a {type(found).__name__}; it must be a LangGraph graph, or a function that returns one")
    if isinstance(found.checkpointer, InMemorySaver):
        _logger.warning("%s has an in-memory checkpointer of its own: its conversations are lost when this process ends", name)
    if not isinstance(found.checkpointer, BaseCheckpointSaver):
        found = found.copy(update={"checkpointer": checkpointer})
    if isinstance(found, CompiledStateGraph):
        # Read from the builder: the JSON schema cannot be made from every state that LangGraph takes.
        inputs = sorted(found.builder.schemas[found.builder.input_schema])
        if "messages" not in inputs:
            raise AgentDoesNotFitError(f"{name} takes {inputs} as input; it must take `messages`, as MessagesState does")
    return found
