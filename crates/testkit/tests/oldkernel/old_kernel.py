#!/usr/bin/env python3
"""Becomes a program that meets the system calls of Linux 4.18 and no later ones.

old_kernel.py PROGRAM [ARGUMENT ...]

A filter of seccomp answers every later call with ENOSYS, as such a kernel does, and later flags of
two calls as it answers unknown ones. Calls are numbered in the order in which kernels got them, so
no list of them is needed that would grow old. What later kernels do otherwise in the same calls is
not seen: statx tells of direct I/O there.
"""
import ctypes
import errno
import os
import struct
import sys

# Of each machine: AUDIT_ARCH, the last call of 4.18 (rseq), preadv2, pwritev2, madvise.
MACHINES = {
    "x86_64": (0xC000003E, 334, 327, 328, 28),
    "aarch64": (0xC00000B7, 293, 286, 287, 233),
}
RWF_OF_4_18 = 0x1F
MADV_LAST_OF_4_18 = 19

# Instructions of classic BPF, and the places of struct seccomp_data.
LOAD, EQUAL, GREATER, AND, RETURN = 0x20, 0x15, 0x25, 0x54, 0x06
NUMBER, ARCH = 0, 4
ALLOW, ANSWER = 0x7FFF0000, 0x00050000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2


def argument(index):
    """Where the lower half of an argument is, on machines that begin with the lowest byte."""
    return 16 + 8 * index


def program(machine):
    """The filter, as (code, target if true, target if false, value); targets are labels."""
    arch, last, preadv2, pwritev2, madvise = MACHINES[machine]
    answer = {name: ANSWER | getattr(errno, name) for name in ("ENOSYS", "EOPNOTSUPP", "EINVAL")}
    return [
        (None, LOAD, None, None, ARCH),
        (None, EQUAL, None, "ENOSYS", arch),
        (None, LOAD, None, None, NUMBER),
        (None, GREATER, "ENOSYS", None, last),
        (None, EQUAL, "flags", None, preadv2),
        (None, EQUAL, "flags", None, pwritev2),
        (None, EQUAL, "advice", "allow", madvise),
        ("flags", LOAD, None, None, argument(5)),
        (None, AND, None, None, 0xFFFFFFFF & ~RWF_OF_4_18),
        (None, EQUAL, "allow", "EOPNOTSUPP", 0),
        ("advice", LOAD, None, None, argument(2)),
        (None, GREATER, "EINVAL", "allow", MADV_LAST_OF_4_18),
        ("allow", RETURN, None, None, ALLOW),
    ] + [(name, RETURN, None, None, value) for name, value in answer.items()]


def assembled(lines):
    """The bytes of struct sock_filter, one after the other."""
    labels = {label: at for at, (label, *_) in enumerate(lines) if label}
    code = b""
    for at, (_, what, if_true, if_false, value) in enumerate(lines):
        jumps = [labels[target] - at - 1 if target else 0 for target in (if_true, if_false)]
        code += struct.pack("=HBBI", what, *jumps, value)
    return code


def filter_calls():
    """Has the kernel filter the calls of this process and of all that it becomes or starts."""
    code = assembled(program(os.uname().machine))
    held = ctypes.create_string_buffer(code)
    wanted = struct.pack("@HP", len(code) // 8, ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, MODE_FILTER, wanted)):
        if libc.prctl(*arguments) != 0:
            number = ctypes.get_errno()
            sys.exit(f"old_kernel.py: prctl{arguments[:2]}: {os.strerror(number)}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if os.uname().machine not in MACHINES:
        sys.exit(f"old_kernel.py: no numbers of {os.uname().machine} are known")
    filter_calls()
    os.execvp(sys.argv[1], sys.argv[1:])
