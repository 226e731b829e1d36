"""A server that stands still, with its connections: waits end.

Seen to fail without watch.c: test_reading did not end.  With "false" as the answer of
server_answers() test_busy.
"""

import contextlib
import errno
import os
import signal
import subprocess
import threading
import time

import support
from support import FileSystemTest, Mount

TIMEO = 3
# Beside "timeo": one question, one attempt to connect, and a busy machine.
BOUND = TIMEO + 12


def server_processes():
    """The server's first process before its children."""
    with open(os.path.join(support.DATA, "postmaster.pid"), encoding="utf8") as file:
        first = file.readline().strip()
    children = subprocess.run(["pgrep", "-P", first], capture_output=True, text=True, check=True)
    return [int(pid) for pid in [first, *children.stdout.split()]]


@contextlib.contextmanager
def stopped_server(stopped=None):
    """Processes that were asked for before, or now, which makes a process: its end of open files is
    a close() of each."""
    stopped = stopped or server_processes()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


class StoppedTest(FileSystemTest):
    def assert_fails(self, function, *arguments):
        """EIO, when "timeo" has passed."""
        started = time.monotonic()
        with self.assertRaises(OSError) as raised:
            function(*arguments)
        seconds = time.monotonic() - started
        self.assertEqual(raised.exception.errno, errno.EIO)
        self.assertLess(seconds, BOUND)
        return seconds

    def test_reading(self):
        """Reads of a server that stands still are EIO, many as one; it is used again when it
        answers."""
        content = self.bytes(300_000)
        for number in range(20):
            self.put(f"/f{number}", content)
        with Mount(f"fs=docs,timeout=0,connections=3,timeo={TIMEO}") as mount:
            self.assertEqual(mount.read("f0"), content)
            with stopped_server():
                self.assertGreater(self.assert_fails(mount.read, "f0"), TIMEO / 2)
                self.assertIn("the server has answered nothing for 3 seconds", mount.messages())
                threads = [threading.Thread(target=self.assert_fails,
                                            args=(os.stat, mount.path(f"f{number}")))
                           for number in range(20)]
                started = time.monotonic()
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                self.assertLess(time.monotonic() - started, BOUND)
            support.wait_until(lambda: os.path.exists(mount.path("f0")), "the server")
            for number in range(20):
                self.assertEqual(mount.read(f"f{number}"), content)

    def test_writing(self):
        """fsync() is EIO, also when the server does not take the bytes; later ones write them, and
        once."""
        content = self.bytes(4_000_000)
        with Mount(f"fs=docs,timeo={TIMEO}") as mount:
            path = mount.path("f")
            with open(path, "wb") as file:
                file.write(b"old")
            processes = server_processes()
            file = os.open(path, os.O_WRONLY | os.O_TRUNC)
            os.write(file, content)
            with stopped_server(processes):
                self.assert_fails(os.fsync, file)
            support.wait_until(lambda: os.path.exists(mount.path("f")), "the server")
            os.fsync(file)
            os.close(file)
            self.assertEqual(self.server_read("/f"), content)
            with open(path, "ab") as file:
                file.write(b"more")
            self.assertEqual(self.server_read("/f"), content + b"more")

    def test_busy(self):
        """A server that answers others is waited for, however long a statement takes."""
        self.put("/f", b"content")
        with Mount("fs=docs,timeo=1,timeout=0") as mount:
            with self.sql.transaction():
                self.sql.execute("LOCK TABLE docs.inode IN ACCESS EXCLUSIVE MODE")
                reader = subprocess.Popen(["cat", mount.path("f")], stdout=subprocess.PIPE)
                with self.assertRaises(subprocess.TimeoutExpired):
                    reader.wait(5)
            self.assertEqual(reader.communicate()[0], b"content")
            self.assertEqual(mount.messages(), "")

    def test_unmount(self):
        """A mount of a server that stands still ends."""
        mount = Mount(f"fs=docs,timeo={TIMEO}")
        with open(mount.path("f"), "wb") as file:
            file.write(b"content")
        with stopped_server():
            started = time.monotonic()
            mount.stop()
            self.assertLess(time.monotonic() - started, 3 * BOUND)
        mount.errors.close()
        os.rmdir(mount.directory)


if __name__ == "__main__":
    support.main()
