"""`python -m coding_framework.cuda.sandbox.confined_python MODULE:FUNCTION`: the inside of a
`PythonChild`. The function makes an answer of each request; both are bytes.

Before the first request the process loses for good what code from outside could start with: other
processes, sockets, other programs, other processes' memory. Threads may be made.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import platform
import struct
import sys

from coding_framework.cuda.sandbox.python_child import DONE, FAILED, FRAME

_CLONE_THREAD = 0x00010000
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _GIVE = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2
_CALLS = {
    # fork, vfork, execve, execveat, socket, socketpair, ptrace, process_vm_readv and _writev,
    # io_uring_setup, unshare, setns, mount, bpf, perf_event_open, keyctl, add_key, userfaultfd,
    # kill, tkill, pidfd_send_signal
    "x86_64": (0xC000003E, 56, (
        57, 58, 59, 322, 41, 53, 101, 310, 311, 425, 272, 308, 165, 321, 298, 250, 248, 323, 62,
        200, 424,
    )),
    "aarch64": (0xC00000B7, 220, (
        221, 281, 198, 199, 117, 270, 271, 425, 97, 268, 40, 280, 241, 219, 217, 282, 129, 130, 424,
    )),
}  # fmt: skip
"""By machine: its number, clone's, and those that are denied."""
_CLONE3 = 435
_OTHER_NUMBERS = 0x40000000
"""From here on x86-64 has the same calls by other numbers."""


def deny_processes() -> None:
    """Raises OSError where the kernel cannot filter, or the machine is no x86-64 or ARM."""
    try:
        architecture, clone, denied = _CALLS[platform.machine()]
    except KeyError:
        raise OSError(errno.ENOSYS, f"no system call filter for {platform.machine()}") from None
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture),
        (_GIVE, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _OTHER_NUMBERS),
        (_GIVE, 0, 0, _ERRNO | errno.EPERM),
    ]
    for number in denied:
        program += [(_EQUAL, 0, 1, number), (_GIVE, 0, 0, _ERRNO | errno.EPERM)]
    # its flags lie in memory, which a filter cannot read: the C library then takes clone
    program += [(_EQUAL, 0, 1, _CLONE3), (_GIVE, 0, 0, _ERRNO | errno.ENOSYS)]
    program += [
        (_EQUAL, 0, 3, clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_ANY_BIT, 1, 0, _CLONE_THREAD),
        (_GIVE, 0, 0, _ERRNO | errno.EPERM),
        (_GIVE, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    told = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    given = ctypes.create_string_buffer(told)
    for arguments in (
        (_NO_NEW_PRIVILEGES, 1, 0, 0, 0),
        (_SECCOMP, _FILTER, ctypes.addressof(given), 0, 0),
    ):
        if library.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "the kernel cannot filter system calls")


def _import_torch() -> None:
    """With what it imports at its first use: later there is no folder for temporary files."""
    import torch

    torch.set_num_threads(1)
    with torch.device("meta"):
        torch.nn.Linear(2, 2)(torch.empty(1, 2))


def main() -> None:
    """Answer requests until there are none."""
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for handle in (1, 2):  # what code from outside prints is nobody's
        os.dup2(nowhere, handle)
    module, _, name = sys.argv[1].partition(":")
    answer = getattr(importlib.import_module(module), name)
    _import_torch()
    deny_processes()
    answers.write(FRAME.pack(0))
    answers.flush()
    while head := sys.stdin.buffer.read(FRAME.size):
        request = sys.stdin.buffer.read(FRAME.unpack(head)[0])
        try:
            said = DONE + answer(request)
        except Exception as e:
            said = FAILED + str(e)[:600].encode("utf-8", "replace")
        answers.write(FRAME.pack(len(said)) + said)
        answers.flush()


if __name__ == "__main__":
    main()
