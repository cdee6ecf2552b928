"""The table of problems as it goes out: every code, and what an exception may never say."""

import json
from uuid import uuid4

import pytest
import structlog
from starlette.responses import Response
from structlog.testing import capture_logs

from gateway.domain.ids import RunId
from gateway.domain.problems import PROBLEMS, Code, Refused
from gateway.store.errors import AnswerLost, DatabaseUnavailable, DeadlockOrSerialization
from gateway.web.problems import problem, refusal_of


def document(response: Response) -> dict[str, object]:
    decoded: dict[str, object] = json.loads(bytes(response.body))
    return decoded


def test_every_code_has_a_row() -> None:
    assert set(PROBLEMS) == set(Code)


@pytest.mark.parametrize("code", list(Code))
def test_every_code_renders(code: Code) -> None:
    response = problem(Refused(code), "req-1")
    row = PROBLEMS[code]
    assert response.status_code == row.status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["cache-control"] == "no-store"
    assert document(response) == {
        "type": f"/problems/{code.value}",
        "title": row.title,
        "status": row.status,
        "code": code.value,
        "detail": row.detail,
        "instance": "urn:request:req-1",
        "retry": row.retry.value,
    }
    assert ("retry-after" in response.headers) == (row.status in (429, 503))


def test_a_run_more_members_and_a_better_figure() -> None:
    run_id = RunId(uuid4())
    response = problem(Refused(Code.USER_BUSY, run_id=run_id, retry_after_seconds=17, extra={"runs": [1], "code": "other"}), "r")
    assert document(response)["run_id"] == str(run_id)
    assert document(response)["runs"] == [1]
    assert document(response)["code"] == "user_busy"
    assert response.headers["retry-after"] == "17"


@pytest.mark.parametrize("error", [DatabaseUnavailable("statement"), AnswerLost("statement"), DeadlockOrSerialization("statement")])
def test_database_trouble_is_503_and_the_same_submission_may_come_again(error: Exception) -> None:
    refused = refusal_of(error)
    assert refused.code is Code.DATABASE_UNAVAILABLE
    assert PROBLEMS[refused.code].retry == "same-submission"


def test_what_nobody_expected_is_told_by_its_type_only() -> None:
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        refused = refusal_of(ValueError("a secret in a text"))
    assert refused.code is Code.INTERNAL_ERROR
    assert "secret" not in json.dumps(lines)
    assert lines[0]["error"] == "builtins.ValueError"
