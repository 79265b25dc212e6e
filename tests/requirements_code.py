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
    R("code:sandbox:missing", _SANDBOX, "Where no sandbox can run it, a call is a failed item with the reason."),
    R(
        "code:interpreter:call",
        "hosted-tools A1",
        "Code that the model writes is run; its output, last value and errors come back.",
    ),
    R(
        "code:interpreter:files",
        "hosted-tools A1",
        "Files that code writes become files of the container and are named to the model.",
    ),
    R(
        "code:interpreter:images",
        "hosted-tools A1",
        "What a cell shows as a picture is a file of the container and an image of the item.",
    ),
    R(
        "code:interpreter:chain",
        _SANDBOX,
        "A chain keeps its container while it lives; lost variables are said, files remain.",
    ),
    R(
        "code:interpreter:entry",
        "hosted-tools A1",
        "An entry of the wrong shape is a 400; a container that cannot be had is a failed item.",
    ),
    R("code:interpreter:monty", _SANDBOX, "Monty runs code without files; a shell over it is refused with the reason."),
    R(
        "code:citations",
        "hosted-tools A1",
        "Links of an answer to files of containers have container_file_citation annotations.",
    ),
    R(
        "code:shell:hosted",
        "hosted-tools A1",
        "A shell in a container runs several commands, each with its outputs, outcome and time.",
    ),
    R("code:shell:client", "hosted-tools A1", "A shell of the client's own machine stays the client's."),
    R("containers:tenancy", "issue 6, Must show 7", "A container of another tenant is one that is not there."),
    R(
        "containers:expiry",
        "hosted-tools A3",
        "A container expires after its minutes without use, and is shown as expired for a day.",
    ),
    R(
        "containers:bounds",
        _SANDBOX,
        "Containers, and the number and bytes of their files, are bounded by tenant and altogether.",
    ),
    R("containers:sandboxes", _SANDBOX, "So many containers run at a time; the one that is idle longest makes room."),
    R(
        "containers:names",
        "faults B3 31",
        "Of a path that code or an upload gives, only what is safe to write is kept.",
    ),
    R(
        "containers:memory",
        "hosted-tools A3",
        "A container has the memory that is asked for, as far as the operator lets it.",
    ),
    R(
        "containers:files:bounded",
        _SANDBOX,
        "Files that are too many or too large are not kept, which the model is told.",
    ),
    R(
        "containers:create:checked",
        "hosted-tools A3",
        "What creates a container is checked, and a refusal names the field.",
    ),
    R("containers:routes", "hosted-tools A3", "Containers are created, listed, retrieved and deleted."),
    R(
        "containers:files",
        "hosted-tools A3",
        "Files go into a container by a form or the id of an upload, and come out whole.",
    ),
    R("containers:sdk", "hosted-tools A3", "The openai package uses containers and their files."),
    R("code:response:events", "hosted-tools A2", "The events of a code interpreter stand in the order of the capture."),
    R(
        "code:response:chain",
        _SANDBOX,
        "Responses of a chain, and those that name it, run in one container, whose files are had over HTTP.",
    ),
    R("code:shell:response", "hosted-tools A2", "A hosted shell gives a call and, after it, its output."),
    R(
        "code:sdk",
        "hosted-tools A1",
        "Streams of code and shells, failed ones too, are valid by the types of the openai package.",
    ),
    R(
        "code:interpreter:odd",
        _SANDBOX,
        "Code that closes, replaces or floods its own outputs, forks or exits, is answered.",
    ),
)
