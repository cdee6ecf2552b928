"""Which addresses an upstream may have (contract A1): one rule for the text of a base URL and for what a name resolves to.

What lives here: the rule. What does not: what a URL looks like (`bindings.urls`); resolving and connecting (`http_client`,
`upstream.one_post`).
"""

import ipaddress
from collections.abc import Collection
from enum import StrEnum
from typing import Final, assert_never

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Metadata services that are not link-local: AWS over IPv6, Alibaba, Oracle's older one.
_METADATA: Final = frozenset(ipaddress.ip_address(text) for text in ("fd00:ec2::254", "100.100.100.200", "192.0.0.192"))
_BROADCAST: Final = ipaddress.IPv4Address("255.255.255.255")
# Addresses that carry an IPv4 one in their last 32 bits: the compatible ones of old, translated ones, NAT64, NAT64 of a site. What Python
# says of them depends on its version.
_CARRIERS: Final = tuple(ipaddress.IPv6Network(text) for text in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"))


class Reach(StrEnum):
    """Whom an address may serve."""

    NOBODY = "nobody"
    """Link-local, metadata, multicast, broadcast, unspecified: never an upstream, not even of a trusted host."""
    TRUSTED = "trusted"
    """Private and loopback: only for hosts that are trusted."""
    EVERYBODY = "everybody"


def address_of(text: str) -> Address | None:
    """The address in its usual form, without brackets; None for a name and every other form (127.1, 0x7f000001, ::1%eth0)."""
    try:
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None


def canonical_host(host: str) -> str:
    """One form of a name or an address: lower case, no brackets, addresses as `ipaddress` writes them."""
    text = host.lower().removeprefix("[").removesuffix("]")
    address = address_of(text)
    return text if address is None else str(address)


def canonical_hosts(hosts: Collection[str]) -> frozenset[str]:
    """Trusted hosts (GATEWAY_TRUSTED_UPSTREAM_HOSTS) in the form in which `is_allowed` compares them."""
    return frozenset(canonical_host(host) for host in hosts)


def reach_of(address: Address) -> Reach:
    """The rule. An IPv4 address inside an IPv6 one counts as what it is."""
    meant = _embedded(address)
    if meant in _METADATA or meant.is_link_local or meant.is_unspecified or meant.is_multicast or meant == _BROADCAST:
        return Reach.NOBODY
    return Reach.EVERYBODY if meant.is_global else Reach.TRUSTED


def is_allowed(address: str, host: str, trusted_hosts: frozenset[str]) -> bool:
    """Whether `host`, a name or an address, may be reached at `address`. `trusted_hosts` come from `canonical_hosts`."""
    parsed = address_of(address)
    if parsed is None:
        return False
    reach = reach_of(parsed)
    match reach:
        case Reach.NOBODY:
            return False
        case Reach.TRUSTED:
            return canonical_host(host) in trusted_hosts
        case Reach.EVERYBODY:
            return True
        case _:
            assert_never(reach)


def _embedded(address: Address) -> Address:
    """The IPv4 address inside a mapped, compatible, translated, 6to4 or NAT64 one; else the address."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if any(address in carrier for carrier in _CARRIERS):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
