"""URLs and names that nothing may ask which someone else aims: the table of faults B2 17, for every way out."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["DENIED_NAMES", "DENIED_URLS", "Names"]

DENIED_URLS: dict[str, str] = {
    # Addresses that are not public, of version 4.
    "loopback": "http://127.0.0.1:PORT/",
    "loopback elsewhere": "http://127.8.9.10:PORT/",
    "this host": "http://0.0.0.0:PORT/",
    "this network": "http://0.1.2.3:PORT/",
    "private 10": "http://10.0.0.1:PORT/",
    "private 172": "http://172.31.255.254:PORT/",
    "private 192": "http://192.168.1.1:PORT/",
    "link-local": "http://169.254.1.1:PORT/",
    "cloud metadata": "http://169.254.169.254:PORT/latest/meta-data/",
    "carrier NAT": "http://100.64.0.1:PORT/",
    "another cloud's metadata": "http://100.100.100.200:PORT/",
    "a third cloud's metadata": "http://168.63.129.16:PORT/",
    "protocol assignments": "http://192.0.0.192:PORT/",
    "documentation 1": "http://192.0.2.1:PORT/",
    "documentation 2": "http://198.51.100.1:PORT/",
    "documentation 3": "http://203.0.113.1:PORT/",
    "benchmarking": "http://198.18.0.1:PORT/",
    "6to4 relay": "http://192.88.99.1:PORT/",
    "multicast": "http://224.0.0.1:PORT/",
    "reserved": "http://240.0.0.1:PORT/",
    "broadcast": "http://255.255.255.255:PORT/",
    # The same of version 6, and those that hold one of version 4.
    "loopback 6": "http://[::1]:PORT/",
    "loopback 6 in full": "http://[0:0:0:0:0:0:0:1]:PORT/",
    "unspecified 6": "http://[::]:PORT/",
    "mapped": "http://[::ffff:127.0.0.1]:PORT/",
    "mapped in hexadecimal": "http://[::ffff:7f00:1]:PORT/",
    "mapped public": "http://[::ffff:8.8.8.8]:PORT/",
    "compatible": "http://[::127.0.0.1]:PORT/",
    "translated": "http://[::ffff:0:127.0.0.1]:PORT/",
    "NAT64": "http://[64:ff9b::7f00:1]:PORT/",
    "NAT64 of metadata": "http://[64:ff9b::a9fe:a9fe]:PORT/",
    "local NAT64": "http://[64:ff9b:1::7f00:1]:PORT/",
    "6to4": "http://[2002:7f00:1::]:PORT/",
    "Teredo": "http://[2001:0:7f00:1::]:PORT/",
    "unique local": "http://[fd00::1]:PORT/",
    "metadata 6": "http://[fd00:ec2::254]:PORT/",
    "link-local 6": "http://[fe80::1]:PORT/",
    "link-local 6 with a zone": "http://[fe80::1%25lo]:PORT/",
    "site-local 6": "http://[fec0::1]:PORT/",
    "multicast 6": "http://[ff02::1]:PORT/",
    "documentation 6": "http://[2001:db8::1]:PORT/",
    "newer documentation 6": "http://[3fff::1]:PORT/",
    "discard-only 6": "http://[100::1]:PORT/",
    # Other spellings of an address.
    "decimal": "http://2130706433:PORT/",
    "octal": "http://0177.0.0.1:PORT/",
    "octal in one": "http://017700000001:PORT/",
    "leading zero": "http://127.0.0.01:PORT/",
    "hexadecimal": "http://0x7f000001:PORT/",
    "hexadecimal parts": "http://0x7f.0x0.0x0.0x1:PORT/",
    "mixed parts": "http://127.0.0.0x1:PORT/",
    "short": "http://127.1:PORT/",
    "shorter": "http://0:PORT/",
    "a dot at the end": "http://127.0.0.1.:PORT/",
    "wide digits": "http://１２７.0.0.1:PORT/",
    "circled digits": "http://①②⑦.⓪.⓪.①:PORT/",
    "wide dot": "http://127。0。0。1:PORT/",
    "escaped": "http://%31%32%37.0.0.1:PORT/",
    "too large": "http://127.0.0.256:PORT/",
    # Confusion of readers.
    "backslash": "http://127.0.0.1:PORT\\@public.example/",
    "backslash after a name": "http://public.example\\@127.0.0.1:PORT/",
    "backslashes for slashes": "http:\\\\127.0.0.1:PORT/",
    "user name": "http://public.example@127.0.0.1:PORT/",
    "user name and password": "http://public.example:80@127.0.0.1:PORT/",
    "empty user name": "http://@127.0.0.1:PORT/",
    "two user names": "http://a@public.example@127.0.0.1:PORT/",
    "tab in the host": "http://127.0.\t0.1:PORT/",
    "newline": "http://127.0.0.1:PORT/\r\nHost: other",
    "space before": " http://127.0.0.1:PORT/",
    "null": "http://127.0.0.1\0.public.example:PORT/",
    "no slashes": "http:127.0.0.1:PORT",
    "one slash": "http:/127.0.0.1:PORT/",
    "three slashes": "http:///127.0.0.1:PORT/",
    "no host": "http://:PORT/",
    "two ports": "http://127.0.0.1:PORT:80/",
    "port out of range": "http://public.example:65536/",
    "port zero": "http://public.example:0/",
    "signed port": "http://public.example:+80/",
    "empty label": "http://public..example:PORT/",
    "endless label": f"http://{'a' * 64}.example:PORT/",
    "endless host": f"http://{'a.' * 127}example:PORT/",
    "endless URL": f"http://public.example:PORT/{'a' * 8192}",
    "open bracket": "http://[::1:PORT/",
    "text after a bracket": "http://[::1]public.example:PORT/",
    # Schemes that are not the web's.
    "file": "file:///etc/passwd",
    "ftp": "ftp://127.0.0.1:PORT/",
    "gopher": "gopher://127.0.0.1:PORT/_GET",
    "unix": "unix:///var/run/docker.sock",
    "scheme within": "http+unix://127.0.0.1:PORT/",
    "data": "data:text/plain,hello",
    "script": "javascript://127.0.0.1:PORT/",
    "relative": "//127.0.0.1:PORT/",
    "nothing": "",
}

DENIED_NAMES: dict[str, Sequence[str]] = {
    "localhost": ["127.0.0.1"],
    "localhost.": ["127.0.0.1"],
    "LOCALHOST": ["127.0.0.1", "::1"],
    "loop.example": ["127.0.0.1"],
    "loop6.example": ["::1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "zone.example": ["fe80::1%lo"],
    "nat64.example": ["64:ff9b::7f00:1"],
    "metadata.example": ["169.254.169.254"],
    "private.example": ["10.1.2.3"],
    "any.example": ["0.0.0.0"],
    "mixed.example": ["93.184.216.34", "127.0.0.1"],
    "mixed-families.example": ["2606:2800:220:1::1", "127.0.0.1"],
    "odd.example": ["localhost"],
}


class Names:
    """A name service of the test's own; several answers for one name are given in turn."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0) if self.answers else []
