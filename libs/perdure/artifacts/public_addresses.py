"""Which IP addresses belong to the public internet: all others lead to this machine, to its
neighbours, or to what a cloud tells its own machines.

After IANA's registries of special-purpose addresses for IPv4 (RFC 6890) and IPv6.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from typing import Final

_NOT_PUBLIC_4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network; Linux takes 0.0.0.0 for itself
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by a provider; metadata of Alibaba Cloud
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # Azure tells its machines of themselves here
            "169.254.0.0/16",  # link-local; metadata of most clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments; metadata of Oracle Cloud
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays to 6to4
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_PUBLIC_6: Final = IPv6Network("2000::/3")  # all that is assigned to be reached by everybody
_NOT_PUBLIC_6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, Teredo among them
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: an IPv4 address of any kind inside
            "3fff::/20",  # documentation
        ),
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")  # RFC 6052: leads to the IPv4 address at its end


def is_public(text: str) -> bool:
    """Whether a numeric address is one of the public internet. A zone (`%eth0`) never is."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    if address.scope_id is not None:
        return False
    if address in _NAT64:
        return is_public(str(IPv4Address(int(address) & 0xFFFFFFFF)))
    return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)
