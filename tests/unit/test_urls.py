"""Base URLs: one form for each, and everything refused that could leak, mislead or reach inwards."""

import pytest

from gateway.bindings.fingerprint import Profile, binding_fingerprint, endpoint_fingerprint, profile_of
from gateway.bindings.urls import normalise_base_url, origin
from gateway.domain.addresses import canonical_hosts, is_allowed
from gateway.domain.problems import Code, Refused

TRUSTED = ("agent", "127.0.0.1", "::1", "10.1.2.3", "localhost", "169.254.169.254", "fd00:ec2::254", "metadata.google.internal")


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("https://Agent.Example", "https://agent.example"),
        ("https://agent.example/", "https://agent.example"),
        ("https://agent.example:443//", "https://agent.example"),
        ("HTTPS://agent.example:8443/v1/", "https://agent.example:8443/v1"),
        (" https://agent.example/a.b~c \n", "https://agent.example/a.b~c"),
        ("http://agent", "http://agent"),
        ("http://agent:80/x", "http://agent/x"),
        ("http://127.0.0.1:8123/", "http://127.0.0.1:8123"),
        ("http://[::1]:8123", "http://[::1]:8123"),
        ("http://[0:0:0:0:0:0:0:1]:8123", "http://[::1]:8123"),
        ("https://10.1.2.3", "https://10.1.2.3"),
        ("https://93.184.215.14", "https://93.184.215.14"),
        ("https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]", "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]"),
        ("http://localhost:2024", "http://localhost:2024"),
    ],
)
def test_a_url_has_one_form(raw: str, wanted: str) -> None:
    assert normalise_base_url(raw, TRUSTED) == wanted
    assert normalise_base_url(wanted, TRUSTED) == wanted


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "agent.example",
        "//agent.example",
        "ftp://agent.example",
        "https://",
        "https:///path",
        "https://agent.example?x=1",
        "https://agent.example/?",
        "https://agent.example#",
        "https://u:pw_X@agent.example",
        "https://@agent.example",
        "https://agent.example:0",
        "https://agent.example:",
        "https://agent.example:99999",
        "https://agent.example:port",
        "https://agent.example\\@evil.example",
        "https://agent.example/a//b",
        "https://agent.example/../x",
        "https://agent.example/./x",
        "https://agent.example/%2e%2e/x",
        "https://agent example",
        "https://agent\n.example",
        "https://agént.example",
        "https://-agent.example",
        "https://agent..example",
        "https://agent.example.",
        "https://[::1",
        "https://[fe80::1%25eth0]",
        "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c%25eth0]",
        "https://[::1].agent.example",
        "https://[::1]agent.example",
        "https://agent.example[::1]",
        "https://[v1.agent]",
        "https://[93.184.215.14]",
        "https://[::127.0.0.1]",
        "https://[::10.9.9.9]",
        "https://[64:ff9b:1::a09:909]",
        "http://agent.example",
        "http://10.9.9.9",
        "https://10.9.9.9",
        "https://192.168.0.1",
        "https://100.64.0.1",
        "https://127.0.0.2",
        "https://[::ffff:10.9.9.9]",
        "https://[fd12::1]",
        "https://app.localhost",
        "https://printer.local",
        "https://127.1",
        "https://2130706433",
        "https://0x7f000001",
        "https://0x7f.1",
        "https://0177.0.0.1",
        "https://" + "a" * 2001,
    ],
)
def test_other_urls_are_refused(raw: str) -> None:
    with pytest.raises(Refused) as caught:
        normalise_base_url(raw, TRUSTED)
    assert caught.value.code is Code.CONFIGURATION_INVALID
    assert caught.value.extra["field"] == "base_url"
    assert "pw_X" not in f"{caught.value!r} {caught.value.extra}"
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:a9fe:a9fe::]",
        "[::169.254.169.254]",
        "[::ffff:0:169.254.169.254]",
        "[64:ff9b:1::a9fe:a9fe]",
        "0.0.0.0",
        "[::]",
        "224.0.0.1",
        "255.255.255.255",
        "metadata.google.internal",
    ],
)
def test_link_local_and_metadata_are_refused_even_when_trusted(host: str) -> None:
    with pytest.raises(Refused):
        normalise_base_url(f"http://{host}", (*TRUSTED, host))


PUBLIC = ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::ffff:93.184.215.14", "64:ff9b::5db8:d70e", "2002:5db8:d70e::1"]
PRIVATE = [
    "127.0.0.1",
    "::1",
    "10.1.2.3",
    "192.168.0.1",
    "100.64.0.1",
    "240.0.0.1",
    "fd12::1",
    "::ffff:10.9.9.9",
    "64:ff9b::a09:909",
    "2002:a09:909::",
    "::10.9.9.9",
    "::ffff:0:10.9.9.9",
    "64:ff9b:1::a09:909",
]
FORBIDDEN = [
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::",
    "fe80::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "fd00:ec2::254%eth0",
    "::169.254.169.254",
    "::ffff:0:169.254.169.254",
    "64:ff9b:1::a9fe:a9fe",
]
FORBIDDEN += ["100.100.100.200", "192.0.0.192", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "::ffff:255.255.255.255"]
NO_ADDRESS = ["", "agent", "127.1", "0x7f000001", "2130706433", "127.0.0.1.", "[::1]", "::1 "]


@pytest.mark.parametrize("host", ["agent", "AGENT", "10.1.2.3", "[0:0:0:0:0:0:0:1]", "stranger.example", "agent.", "sub.agent", ""])
@pytest.mark.parametrize(
    ("addresses", "strangers_may", "trusted_may"),
    [(PUBLIC, True, True), (PRIVATE, False, True), (FORBIDDEN, False, False), (NO_ADDRESS, False, False)],
    ids=["public", "private", "forbidden", "none"],
)
def test_what_a_host_may_be_reached_at(host: str, addresses: list[str], strangers_may: bool, trusted_may: bool) -> None:
    trusted = canonical_hosts(("Agent", "10.1.2.3", "[::1]"))
    expected = trusted_may if host in {"agent", "AGENT", "10.1.2.3", "[0:0:0:0:0:0:0:1]"} else strangers_may
    assert {address: is_allowed(address, host, trusted) for address in addresses} == dict.fromkeys(addresses, expected)


@pytest.mark.parametrize("address", [*PUBLIC, *PRIVATE, *FORBIDDEN])
@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_base_url_and_a_connection_are_judged_alike(address: str, is_trusted: bool) -> None:
    trusted = (address,) if is_trusted else ()
    try:
        normalise_base_url(f"https://[{address}]" if ":" in address else f"https://{address}", trusted)
        judged = True
    except Refused:
        judged = False
    assert judged == is_allowed(address, address, canonical_hosts(trusted))


def test_the_origin_is_what_a_token_was_given_for() -> None:
    assert origin("https://agent.example/v1") == origin("https://agent.example/v2") == "https://agent.example"
    assert origin("https://agent.example:8443") != origin("https://agent.example")


def test_fingerprints_tell_endpoint_assistant_and_profile_apart() -> None:
    base = "https://agent.example"
    fingerprints = {
        binding_fingerprint(base, "agent", Profile.BRIDGE),
        binding_fingerprint(base, "agent", Profile.NATIVE),
        binding_fingerprint(base, "other", Profile.BRIDGE),
        binding_fingerprint(base + "/v1", "agent", Profile.BRIDGE),
        endpoint_fingerprint(base),
        endpoint_fingerprint(base + "/v1"),
    }
    assert len(fingerprints) == 6
    assert {len(fingerprint) for fingerprint in fingerprints} == {32}
    # Stored in rows: another value after an update would end every conversation for good.
    assert endpoint_fingerprint(base).hex() == "a6b20001fea93256a0393bd269baf126372fb86b8ad250893362afb46ae5bb72"
    assert binding_fingerprint(base, "agent", Profile.BRIDGE).hex() == "b39f1b6d7c8eac5df6ccbf7e727df99ba04e16ea6d6e47d22f45b61214148277"
    assert (profile_of(human_input=False), profile_of(human_input=True)) == (Profile.BRIDGE, Profile.NATIVE)
