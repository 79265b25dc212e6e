"""Which addresses a request that someone else aims may reach (faults B2 17).

Only addresses that the whole internet reaches pass. Everything that can mean this machine, its network or its cloud is
denied, and so are addresses of version 6 that hold one of version 4: what reads them differently would go elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from antiphon.errors import ConfigurationError

__all__ = ["AddressPolicy", "is_public"]

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

_DENIED_4: tuple[IPv4Network, ...] = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
"""IANA's registry of special purposes, and 168.63.129.16, which is Azure's own service inside its networks."""

_UNICAST_6 = IPv6Network("2000::/3")
"""All that is routed in public; loopback, mapped, NAT64, local, link-local and multicast addresses lie outside."""

_DENIED_6: tuple[IPv6Network, ...] = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
"""What of it has a special purpose: Teredo and its neighbours, documentation, 6to4."""


_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")


def is_public(address: Address) -> bool:
    """Whether an address is reached over the public internet and nowhere else."""
    if isinstance(address, IPv4Address):
        return not _in_any(address, _DENIED_4)
    return address.scope_id is None and address in _UNICAST_6 and not _in_any(address, _DENIED_6)


class AddressPolicy:
    """Public addresses, and what `--allow-outbound` names beside them.

    An entry is a host name, which may then stand for any address; an address; or a network such as 10.0.0.0/8. With
    `public` False only what is named passes.

    Raises:
        ConfigurationError: an entry is none of these.
    """

    def __init__(self, allow: Sequence[str] = (), *, public: bool = True) -> None:
        self._public = public
        self._hosts: set[str] = set()
        self._networks: list[Network] = []
        for entry in allow:
            network = _network(entry)
            if network is not None:
                self._networks.append(network)
            else:
                self._hosts.add(_host(entry))

    def permits(self, host: str, address: str) -> bool:
        """Whether a URL with that host may be asked at that address, given as text."""
        if host.lower().rstrip(".") in self._hosts:
            return True
        try:
            found = ip_address(address)
        except ValueError:
            return False
        return (self._public and is_public(found)) or _in_any(found, self._networks)


def _in_any(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


def _network(entry: str) -> Network | None:
    try:
        return ip_network(entry.strip("[]"))
    except ValueError:
        return None


def _host(entry: str) -> str:
    name = entry.lower().rstrip(".")
    if not name or not _LETTERS.issuperset(name) or name.rpartition(".")[2].isdigit():
        raise ConfigurationError(
            f"--allow-outbound: '{entry}' is no host name, no address and no network; a network has no bits set beyond "
            "its prefix, as in 10.0.0.0/8."
        )
    return name
