"""Which system calls a sandbox may make: a filter of our own for `bwrap --seccomp` (hosted-tools.md A4).

Namespaces take most of the machine out of sight. What is left are the calls that reach the kernel whatever namespace
they come from, and those are where it is attacked. Each one here is of no use to a program that reckons and writes
files. A call that is refused fails with EPERM; one that is newer than this list does not exist; a program of another
architecture is killed.
"""

from __future__ import annotations

import errno
import platform
import struct

__all__ = ["REFUSED", "seccomp_program"]

_KILL = 0x8000_0000
_ALLOW = 0x7FFF_0000
_ERRNO = 0x0005_0000

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_ABOVE = 0x25  # BPF_JMP | BPF_JGT | BPF_K
_ANY_OF = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06

_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data; the machines are little-endian

_ARCHITECTURES = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}
_NEWEST = 462  # mseal; what has a higher number is unknown here, and so are the calls of x32
_NEW_NAMESPACES = 0x7E02_0000  # every CLONE_NEW* flag that clone takes
_SOCKETS = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: others are not in a network namespace, or are rarely tried code
_TERMINALS = (0x5412, 0x541C, 0x5423)  # TIOCSTI, TIOCLINUX, TIOCSETD

REFUSED: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_kernel_syms": (177, None),
    "get_mempolicy": (239, 236),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "listmount": (458, 458),
    "lookup_dcookie": (212, 18),
    "mbind": (237, 235),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "query_module": (178, None),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "statmount": (457, 457),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
    "vmsplice": (278, 75),
}
"""Calls that fail with EPERM, with their numbers on x86-64 and on aarch64."""

_CLONE, _CLONE3, _IOCTL = (56, 220), 435, (16, 29)
_SOCKET, _SOCKETPAIR = (41, 198), (53, 199)


def seccomp_program(machine: str | None = None) -> bytes | None:
    """The filter for a machine as `platform.machine()` names it, this one by default; None where it is another kind."""
    known = _ARCHITECTURES.get(machine or platform.machine())
    if known is None:
        return None
    which, architecture = known
    program = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, architecture, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
        _step(_ABOVE, _NEWEST, 0, 1),
        _step(_RETURN, _ERRNO | errno.ENOSYS),
        # What glibc falls back from to clone, whose flags can be looked at.
        *_refuse(_CLONE3, errno.ENOSYS),
    ]
    for numbers in REFUSED.values():
        number = numbers[which]
        if number is not None:
            program += _refuse(number, errno.EPERM)
    program += [
        _step(_EQUAL, _CLONE[which], 0, 4),
        _step(_LOAD, _FIRST),
        _step(_ANY_OF, _NEW_NAMESPACES, 0, 1),
        _step(_RETURN, _ERRNO | errno.EPERM),
        _step(_RETURN, _ALLOW),
    ]
    for call in (_SOCKET, _SOCKETPAIR):
        program += _unless(call[which], _FIRST, _SOCKETS, _ALLOW, _ERRNO | errno.EAFNOSUPPORT)
    program += _unless(_IOCTL[which], _SECOND, _TERMINALS, _ERRNO | errno.EPERM, _ALLOW)
    return b"".join([*program, _step(_RETURN, _ALLOW)])


def _step(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_so, if_not, value)


def _refuse(number: int, error: int) -> list[bytes]:
    return [_step(_EQUAL, number, 0, 1), _step(_RETURN, _ERRNO | error)]


def _unless(number: int, argument: int, values: tuple[int, ...], among: int, otherwise: int) -> list[bytes]:
    """For a call by that number: one verdict where an argument is among the values, and another where it is not."""
    tests = [_step(_EQUAL, value, len(values) - place, 0) for place, value in enumerate(values)]
    return [
        _step(_EQUAL, number, 0, len(values) + 3),
        _step(_LOAD, argument),
        *tests,
        _step(_RETURN, otherwise),
        _step(_RETURN, among),
    ]
