"""interrupt.py TREE DIRECTORY: interrupt scripts of TREE/test while they test, and look for what
they leave: processes, files, mounts, loop devices, shared memory.

A case is a command, with a TMPDIR of its own in DIRECTORY, and a way to interrupt it: a signal to
its first process, or, as a terminal's Ctrl-C does, to its process group.  It is sent when a server
runs (of more processes than initdb has), and in some cases the lossy disk, too.  A process belongs
to the case if that TMPDIR is in its environment, its command line or its working directory;
servers overwrite the first two.

After a signal that can be caught nothing may be left when the command has ended.  After SIGKILL
the keeper (see guard) has to clean up, which may take a while.

That it can fail: all cases of SIGKILL and of TAP tests fail for the scripts of version 0.2.0.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

# A condition that has not come true after this time is a failure.
PATIENCE_SECONDS = 180

CASES = [
    ("run tap", ["test/run", "tap", "lossy_disk.pl"], signal.SIGTERM, False, "lossy_disk"),
    ("run tap", ["test/run", "tap", "lossy_disk.pl"], signal.SIGINT, True, "lossy_disk"),
    ("run tap", ["test/run", "tap", "crash.pl", "stale.pl"], signal.SIGKILL, False, "postgres"),
    ("run pgtap", ["test/run", "pgtap"], signal.SIGKILL, False, "postgres"),
    ("run regress", ["test/run", "regress"], signal.SIGINT, True, "postgres"),
    ("run all", ["test/run", "all", "regress", "dump"], signal.SIGTERM, False, "postgres"),
    ("dev/test", ["dev/test", "tap", "crash.pl"], signal.SIGTERM, False, "postgres"),
]


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def processes_of(directory):
    """Living processes of the case: pid to name."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        status = read(process / "stat")
        if not status or status.rsplit(b") ", 1)[1].startswith(b"Z"):
            continue
        if directory in link(process / "cwd") or any(
                directory.encode() in read(process / name) for name in ("environ", "cmdline")):
            found[int(process.name)] = read(process / "comm").decode().strip()
    return found


def system_v_segments():
    """Pairs of a segment's identifier and the process that made it."""
    lines = read(pathlib.Path("/proc/sysvipc/shm")).decode().split("\n")[1:]
    return {(int(line.split()[1]), int(line.split()[4])) for line in lines if line}


# Servers that were killed before this run may have left some; their pids may be used again.
FOREIGN_SEGMENTS = system_v_segments()


def shared_memory_of(pids):
    """Segments of both kinds that these processes have made or use."""
    names = set()
    for pid in pids:
        for line in read(pathlib.Path(f"/proc/{pid}/maps")).decode(errors="replace").split("\n"):
            if "/dev/shm/" in line and not line.endswith("(deleted)"):
                names.add(line[line.index("/dev/shm/"):])
    return names | {f"segment {segment} of process {maker}"
                    for segment, maker in system_v_segments() - FOREIGN_SEGMENTS if maker in pids}


def mounts_of(directory):
    found = set()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        for line in read(process / "mountinfo").decode(errors="replace").split("\n"):
            if directory in line:
                found.add(line.split()[4])
    return found


def loops_of(directory):
    return {path.parts[3] for path in pathlib.Path("/sys/block").glob("loop*/loop/backing_file")
            if directory in read(path).decode(errors="replace")}


def what_is_left(directory, pids, segments):
    left = {
        "process": set(processes_of(directory).values()),
        "file": set(os.listdir(directory)),
        "mount": mounts_of(directory),
        "loop device": loops_of(directory),
        "shared memory": {name for name in segments if name.startswith("/") and
                          os.path.exists(name)} |
                         {name for name in shared_memory_of(pids) if not name.startswith("/")},
    }
    return {kind: names for kind, names in left.items() if names}


def wait_for(condition, process=None):
    """False if it does not come true; at once if the process has ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline or process and process.poll() is not None:
            return False
        time.sleep(0.1)
    return True


def start(tree, command, directory, log):
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("BLOBEXT_TEST_TMP", "BLOBEXT_TEST_KEEP")}
    environment["TMPDIR"] = directory
    return subprocess.Popen(
        [f"{tree}/{command[0]}", *command[1:]], env=environment, stdin=subprocess.DEVNULL,
        stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def end_all(directory):
    """Processes that a failed case has left would disturb the next one."""
    for _ in range(100):
        for pid in processes_of(directory):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.1)
        if not processes_of(directory):
            return


def is_running(directory, awaited):
    names = list(processes_of(directory).values())
    return names.count("postgres") >= 5 and awaited in names


def run_case(tree, parent, case):
    name, command, number, to_group, awaited = case
    directory = tempfile.mkdtemp(prefix="case.", dir=parent)
    os.chmod(directory, 0o1777)
    title = f"{name}, {signal.Signals(number).name}{' to its group' if to_group else ''}"
    with tempfile.TemporaryFile(dir=parent) as log:
        process = start(tree, command, directory, log)
        runs = wait_for(lambda: is_running(directory, awaited), process)
        seen = set(processes_of(directory))
        segments = shared_memory_of(seen)
        if process.poll() is None:
            (os.killpg if to_group else os.kill)(process.pid, number)
        process.wait()
        if number == signal.SIGKILL:
            wait_for(lambda: not what_is_left(directory, seen, segments))
        left = what_is_left(directory, seen, segments)
        end_all(directory)
        if runs and segments and not left:
            print(f"ok - {title}: nothing is left")
            return True
        print(f"not ok - {title}: nothing is left")
        if not runs or not segments:
            log.seek(0)
            print("#   it did not come to a server:\n" + log.read().decode(errors="replace"))
        for kind, names in left.items():
            print(f"#   {kind}: {' '.join(sorted(names))}")
    return False


def main():
    tree, parent = sys.argv[1:]
    cases = CASES
    if os.geteuid() != 0:
        print("# skipped: the lossy disk needs root")
        cases = [case for case in CASES if case[4] != "lossy_disk"]
    results = []
    for case in cases:
        results.append(run_case(os.path.abspath(tree), parent, case))
        sys.stdout.flush()
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
