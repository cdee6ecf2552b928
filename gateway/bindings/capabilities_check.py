"""GET /capabilities for operators: what a new token must pass, and what `gateway check` asks of every application."""

from dataclasses import dataclass

from gateway.http_client import HttpClient
from gateway.upstream.capabilities import NOT_CAPABLE, fetch_capabilities
from gateway.upstream.endpoint import EndpointFault, endpoint_of
from gateway.upstream.faults import CALL_SECONDS, UpstreamFailed


@dataclass(frozen=True, slots=True)
class CapabilitiesCheck:
    """Asks without remembering. Callable as applications.CheckCapabilities."""

    client: HttpClient

    async def __call__(self, *, base_url: str, assistant_id: str, token: str, human_input: bool) -> bool:
        """Whether the service takes the token and names the assistant; with `human_input` also whether that can ask for approval."""
        return await self.fault(base_url=base_url, assistant_id=assistant_id, token=token, human_input=human_input) is None

    async def fault(self, *, base_url: str, assistant_id: str, token: str, human_input: bool) -> str | None:
        """One word for what is wrong, from the closed lists of `upstream`; None when all is well."""
        endpoint = endpoint_of(base_url=base_url, assistant_id=assistant_id, token=token)
        if isinstance(endpoint, EndpointFault):
            return endpoint.value
        answer = await fetch_capabilities(self.client, endpoint, deadline_seconds=CALL_SECONDS)
        if not isinstance(answer, UpstreamFailed):
            return NOT_CAPABLE if human_input and not answer.serves_approval else None
        return answer.fault.value if answer.status is None else f"{answer.fault.value} (HTTP {answer.status})"
