"""Locks that mounts share: -o locks=db.

Seen to fail: without set_mode() in try_lock() all tests; without locks_closed() in op_flush()
test_fcntl; without locks_released() test_flock; without connect_again() test_server_restarts.
"""

import errno
import fcntl
import os
import subprocess
import sys
import threading

import psycopg

import support
from support import Mount, MountTest

COUNT = 25


def count(path):
    """Add to a number in a file, under its lock."""
    for _ in range(COUNT):
        with open(path, "r+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            number = int(file.read() or "0")
            file.seek(0)
            file.write(str(number + 1))
            file.flush()
            os.fsync(file.fileno())


class LocksTest(MountTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sql.execute("SELECT blobfs.create('docs', %s, %s)", (os.getuid(), os.getgid()))

    def setUp(self):
        self.mounts = [self.enterContext(Mount("fs=docs,locks=db,timeout=0")) for _ in range(2)]
        with open(self.mounts[0].path("f"), "wb"):
            pass

    def open(self, number):
        file = open(self.mounts[number].path("f"), "r+b", buffering=0)
        self.addCleanup(file.close)
        return file

    def refuses(self, function, *arguments):
        with self.assertRaises(OSError) as raised:
            function(*arguments)
        self.assertIn(raised.exception.errno, (errno.EAGAIN, errno.EACCES))

    def test_flock(self):
        """flock() excludes others within a mount and between mounts."""
        one, other, second = self.open(0), self.open(0), self.open(1)
        fcntl.flock(one, fcntl.LOCK_EX)
        self.refuses(fcntl.flock, second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.refuses(fcntl.flock, second, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self.refuses(fcntl.flock, other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(one, fcntl.LOCK_SH)
        fcntl.flock(second, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self.refuses(fcntl.flock, second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_UN)
        one.close()
        support.wait_until(lambda: support.can_lock(second), "the lock of a closed file")

    def test_fcntl(self):
        """Ranges exclude within a mount, whole files between mounts."""
        one, second = self.open(0), self.open(1)
        fcntl.lockf(one, fcntl.LOCK_EX, 10, 0)
        # Between mounts a range is the file.
        self.refuses(fcntl.lockf, second, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 100)
        # Within a mount it is not; another process, for a process does not exclude itself.
        for start, expected in ((100, 0), (5, 1)):
            done = subprocess.run(
                [sys.executable, "-c", "import fcntl, sys\n"
                 "file = open(sys.argv[1], 'r+b')\n"
                 f"fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, {start})",
                 self.mounts[0].path("f")], check=False, capture_output=True)
            self.assertEqual(done.returncode, expected, done.stderr)
        os.close(os.open(self.mounts[0].path("f"), os.O_RDONLY))	# gives the process's locks up
        fcntl.lockf(second, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_counter(self):
        """Processes of two mounts, each change under the lock: none is lost."""
        processes = [subprocess.Popen([sys.executable, "-B", __file__, "count", mount.path("f")])
                     for mount in self.mounts for _ in range(2)]
        for process in processes:
            self.assertEqual(process.wait(), 0)
        self.assertEqual(int(self.mounts[0].read("f")), 4 * COUNT)

    def test_wait(self):
        """A lock that is waited for comes when it is free."""
        one, second = self.open(0), self.open(1)
        fcntl.flock(one, fcntl.LOCK_EX)
        thread = threading.Thread(target=fcntl.flock, args=(second, fcntl.LOCK_EX))
        thread.start()
        fcntl.flock(one, fcntl.LOCK_UN)
        thread.join()
        self.refuses(fcntl.flock, one, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_program_is_killed(self):
        """A killed program loses its locks."""
        second = self.open(1)
        with Mount("fs=docs,locks=db") as third:
            one = os.open(third.path("f"), os.O_RDWR)
            fcntl.flock(one, fcntl.LOCK_EX)
            self.refuses(fcntl.flock, second, fcntl.LOCK_EX | fcntl.LOCK_NB)
            third.kill()
            support.wait_until(lambda: support.can_lock(second), "the lock of a killed mount")
            with self.assertRaises(OSError):
                os.close(one)
            third.start()

    def test_server_restarts(self):
        """Locks are held again after a restart of the server."""
        one, second = self.open(0), self.open(1)
        fcntl.flock(one, fcntl.LOCK_EX)
        support.restart_server()
        self.sql.close()
        self.connect()
        # The first request afterwards finds that the connection was lost.
        other = open(self.mounts[0].path("g"), "wb")
        fcntl.flock(other, fcntl.LOCK_EX)
        other.close()
        self.refuses(fcntl.flock, second, fcntl.LOCK_EX | fcntl.LOCK_NB)


if __name__ == "__main__":
    if sys.argv[1:2] == ["count"]:
        count(sys.argv[2])
    else:
        support.main()
