"""The configuration of an application: a closed document."""

import pytest

from gateway.bindings.config import ApplicationConfig, BackendType, langchain_config, parse_config
from gateway.domain.problems import Code, Refused
from gateway.domain.strict_json import Json

LANGCHAIN: dict[str, Json] = {"backend_type": "langchain", "langchain": {"assistant_id": "agent"}}


def test_the_whole_document() -> None:
    document: Json = {
        "backend_type": "langchain",
        "langchain": {"assistant_id": "agent", "human_input": True},
        "app_metadata": {"app_type": "model", "is_marketplace_app": False, "tags": ["Agent", "Ö"]},
    }
    assert parse_config(document) == ApplicationConfig(BackendType.LANGCHAIN, "agent", True, "model", False, ("Agent", "Ö"))


def test_defaults() -> None:
    assert parse_config(LANGCHAIN) == ApplicationConfig(BackendType.LANGCHAIN, "agent", False, "marketplace", True, ())
    assert langchain_config("agent") == parse_config(LANGCHAIN)


def test_a_missing_backend_type_means_dify() -> None:
    assert parse_config({}) == ApplicationConfig(BackendType.DIFY, None)
    assert parse_config({"app_metadata": {"dify_apptype": "chatbot"}}).backend_type is BackendType.DIFY


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ([], "config"),
        ("{}", "config"),
        ({**LANGCHAIN, "token": "tok_X"}, "config"),
        ({"backend_type": "LangChain"}, "backend_type"),
        ({"backend_type": None}, "backend_type"),
        ({"backend_type": ["langchain"]}, "backend_type"),
        ({"backend_type": "langchain"}, "langchain"),
        ({"langchain": {"assistant_id": "agent"}}, "langchain"),
        ({"backend_type": "dify", "langchain": {"assistant_id": "agent"}}, "langchain"),
        ({"backend_type": "langchain", "langchain": []}, "langchain"),
        ({"backend_type": "langchain", "langchain": {"assistant_id": "agent", "url": "x"}}, "langchain"),
        ({"backend_type": "langchain", "langchain": {}}, "langchain.assistant_id"),
        ({"backend_type": "langchain", "langchain": {"assistant_id": ""}}, "langchain.assistant_id"),
        ({"backend_type": "langchain", "langchain": {"assistant_id": "a b"}}, "langchain.assistant_id"),
        ({"backend_type": "langchain", "langchain": {"assistant_id": "a" * 201}}, "langchain.assistant_id"),
        ({"backend_type": "langchain", "langchain": {"assistant_id": 1}}, "langchain.assistant_id"),
        ({"backend_type": "langchain", "langchain": {"assistant_id": "a", "human_input": 1}}, "langchain.human_input"),
        ({**LANGCHAIN, "app_metadata": {"dify_apptype": "chatbot"}}, "app_metadata.dify_apptype"),
        ({**LANGCHAIN, "app_metadata": {"color": "red"}}, "app_metadata"),
        ({**LANGCHAIN, "app_metadata": {"app_type": ""}}, "app_metadata.app_type"),
        ({**LANGCHAIN, "app_metadata": {"is_marketplace_app": "yes"}}, "app_metadata.is_marketplace_app"),
        ({**LANGCHAIN, "app_metadata": {"tags": "Agent"}}, "app_metadata.tags"),
        ({**LANGCHAIN, "app_metadata": {"tags": ["a\x00"]}}, "app_metadata.tags"),
        ({**LANGCHAIN, "app_metadata": {"tags": [""] * 2}}, "app_metadata.tags"),
        ({**LANGCHAIN, "app_metadata": {"tags": ["a"] * 51}}, "app_metadata.tags"),
    ],
)
def test_what_is_not_in_the_schema_is_refused(document: Json, field: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_config(document)
    assert caught.value.code is Code.CONFIGURATION_INVALID
    assert caught.value.extra["field"] == field
    assert "tok_X" not in str(caught.value.extra)
