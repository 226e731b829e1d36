"""with_seccomp.py PROFILE COMMAND [ARGUMENT ...]: run a command under a seccomp profile, as a
container engine does, by libseccomp.  PROFILE is JSON; conditions for capabilities are unknown here.
With WITHOUT=name,name these calls are not allowed.
"""

import ctypes
import json
import os
import sys

ALLOW = 0x7FFF0000
ERRNO = 0x00050000
OPERATORS = {"SCMP_CMP_NE": 1, "SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}


class Comparison(ctypes.Structure):
    _fields_ = [("index", ctypes.c_uint), ("operator", ctypes.c_int),
                ("value", ctypes.c_uint64), ("value_two", ctypes.c_uint64)]


def action_of(name, errno):
    return {"SCMP_ACT_ALLOW": ALLOW, "SCMP_ACT_ERRNO": ERRNO | errno}[name]


def add_rule(library, context, rule, errno, without):
    unknown = set(rule) - {"names", "action", "errnoRet", "args"}
    if unknown:
        raise ValueError(f"a rule has {unknown}")
    comparisons = [Comparison(arg["index"], OPERATORS[arg["op"]], arg["value"],
                              arg.get("valueTwo", 0)) for arg in rule.get("args", [])]
    array = (Comparison * len(comparisons))(*comparisons)
    for name in set(rule["names"]) - without:
        number = library.seccomp_syscall_resolve_name(name.encode())
        # Calls of other processors, or newer than the library, have none.
        if number >= 0 and library.seccomp_rule_add_array(
                context, action_of(rule["action"], rule.get("errnoRet", errno)), number,
                len(comparisons), array) != 0:
            raise ValueError(f"no rule for {name}")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        profile = json.load(file)
    without = set(os.environ.get("WITHOUT", "").split(","))
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    errno = profile["defaultErrnoRet"]
    context = library.seccomp_init(action_of(profile["defaultAction"], errno))
    for rule in profile["syscalls"]:
        add_rule(library, context, rule, errno, without)
    if library.seccomp_load(context) != 0:
        raise OSError("the filter could not be loaded")
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
