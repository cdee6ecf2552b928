"""Which tests one process runs together."""

import pytest

from tests.support.distribution import group_of


@pytest.mark.parametrize(
    ("test_id", "group"),
    [
        ("tests/native/test_gateway.py::test_a[aegra-api]", "aegra-api"),
        ("tests/native/test_gateway.py::test_a[langgraph-api-approve-None]", "langgraph-api"),
        ("tests/native/test_gateway.py::test_a[agent-service-2]", "agent-service"),
        ("tests/unit/test_a.py::test_a[one]", "tests/unit/test_a.py::test_a[one]"),
        ("tests/replicas/test_rolling.py::test_a[nginx]", "tests/replicas/test_rolling.py"),
        ("tests/contract/test_agent_service.py::test_agent-service", "tests/contract/test_agent_service.py::test_agent-service"),
    ],
)
def test_tests_of_one_server_or_of_a_module_that_fills_the_machine_run_together_and_all_others_alone(test_id: str, group: str) -> None:
    assert group_of(test_id) == group
