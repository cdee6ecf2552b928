"""GET /capabilities for operators: what a new token must pass, and what `gateway check` asks of every application."""

from dataclasses import dataclass

from gateway.http_client import HttpClient
from gateway.upstream.capabilities import fetch_capabilities
from gateway.upstream.endpoint import EndpointFault, endpoint_of
from gateway.upstream.faults import CALL_SECONDS, UpstreamFailed


@dataclass(frozen=True, slots=True)
class CapabilitiesCheck:
    """Asks without remembering. Callable as applications.CheckCapabilities."""

    client: HttpClient

    async def __call__(self, *, base_url: str, assistant_id: str, token: str) -> bool:
        """Whether the service takes the token and names the assistant."""
        return await self.fault(base_url=base_url, assistant_id=assistant_id, token=token) is None

    async def fault(self, *, base_url: str, assistant_id: str, token: str) -> str | None:
        """One word for what is wrong, from the closed lists of `upstream`; None when all is well."""
        endpoint = endpoint_of(base_url=base_url, assistant_id=assistant_id, token=token)
        if isinstance(endpoint, EndpointFault):
            return endpoint.value
        answer = await fetch_capabilities(self.client, endpoint, deadline_seconds=CALL_SECONDS)
        if not isinstance(answer, UpstreamFailed):
            return None
        return answer.fault.value if answer.status is None else f"{answer.fault.value} (HTTP {answer.status})"
