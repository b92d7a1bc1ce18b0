"""Sockets to public addresses only: a webhook's URL must not reach the network of the machine."""

import errno
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

__all__ = ["is_public", "make_socket_factory"]

_NAT64 = IPv6Network("64:ff9b::/96")
_LOCAL = (IPv6Network("64:ff9b:1::/48"), IPv6Network("::/96"))
"""Translated within a network (RFC 8215), and IPv4-compatible; not all versions of `ipaddress` know these."""
_LAST_32_BITS = 2**32 - 1


def is_public(address: str) -> bool:
    """Return whether an address, and the IPv4 address that it may contain, is reachable from everywhere."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv4Address):
        return _is_global(ip)
    if ip.ipv4_mapped is not None:
        return _is_global(ip.ipv4_mapped)
    return _is_global(ip) and not any(ip in each for each in _LOCAL) and all(map(_is_global, _list_contained(ip)))


def make_socket_factory(may_reach: Callable[[str], bool]) -> Callable[[tuple[Any, ...]], socket.socket]:
    """Return a function that opens a socket for an entry of `getaddrinfo()`.

    It sees the very address that is connected to, so no name that resolves to another one next time gets past it.
    """

    def open_socket(entry: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, address = entry
        if not may_reach(address[0]):
            raise PermissionError(errno.EACCES, "the address is not public")
        return socket.socket(family, kind, protocol)

    return open_socket


def _is_global(ip: IPv4Address | IPv6Address) -> bool:
    return ip.is_global and not ip.is_multicast


def _list_contained(ip: IPv6Address) -> list[IPv4Address]:
    """Return the IPv4 addresses to which a gateway may forward."""
    translated = IPv4Address(int(ip) & _LAST_32_BITS) if ip in _NAT64 else None
    server, client = ip.teredo or (None, None)
    return [found for found in (ip.sixtofour, server, client, translated) if found is not None]
