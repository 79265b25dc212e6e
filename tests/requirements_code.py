"""The behaviours of code that a model writes: sandboxes, containers, and the tools that use them."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["CODE"]

R = Requirement

_SANDBOX = "issue 6, section 6"

CODE: tuple[Requirement, ...] = (
    R(
        "code:sandbox:files",
        _SANDBOX,
        "A sandbox sees no file of the machine but its programs, and no secret of the server.",
    ),
    R(
        "code:sandbox:network",
        "faults B3 23",
        "A sandbox has no network: not the machine itself, no metadata address, no DNS.",
    ),
    R("code:sandbox:processes", _SANDBOX, "The processes of a sandbox are bounded, and all of them end with it."),
    R("code:sandbox:memory", _SANDBOX, "The memory of a sandbox is bounded."),
    R(
        "code:sandbox:time",
        _SANDBOX,
        "A cell ends in its time, and what does not end by itself is killed from outside.",
    ),
    R(
        "code:sandbox:proc",
        _SANDBOX,
        "The /proc of a sandbox shows only the sandbox, and nothing of it can be changed.",
    ),
    R(
        "code:sandbox:links",
        _SANDBOX,
        "Files are read back from inside a sandbox, so that no link of its leads out of it.",
    ),
    R("code:sandbox:calls", "hosted-tools A4", "System calls that only serve to attack the kernel fail in a sandbox."),
    R("code:sandbox:rights", _SANDBOX, "Code in a sandbox has no capabilities and can get none."),
    R("code:sandbox:disk", _SANDBOX, "The files of a sandbox are bounded."),
    R("code:sandbox:idle", _SANDBOX, "What a cell leaves running is stopped while nobody asks for anything."),
    R("code:sandbox:parent", _SANDBOX, "A sandbox ends with its server, however that ends."),
    R(
        "code:sandbox:unprivileged",
        _SANDBOX,
        "A server without the rights of root has the same walls, by limits of processes.",
    ),
    R("code:sandbox:lies", _SANDBOX, "What a sandbox says is checked, and one that says what cannot be is ended."),
    R("code:output:bounded", _SANDBOX, "Of each output 64 KiB are kept, and where more was is said."),
    R(
        "code:sandbox:groups",
        _SANDBOX,
        "Memory and processes are bounded by control groups of either version, where they can be made.",
    ),
    R(
        "code:sandbox:setting",
        _SANDBOX,
        "The setting says which sandbox there is; without one, why is said, and no code is run.",
    ),
    R("code:sandbox:doctor", _SANDBOX, "`antiphon doctor` says which sandbox there is, and what bounds it."),
    R(
        "code:monty:cells",
        _SANDBOX,
        "Without bubblewrap, Monty runs cells of a part of Python that share their variables.",
    ),
    R("code:monty:bounded", _SANDBOX, "Monty bounds time, memory, depth and output of a cell."),
    R("code:monty:nothing", _SANDBOX, "Code in Monty has no files, no network, no processes and no environment."),
)
