"""Connections that are lost, a program that is killed, a server that crashes: files that were
closed or synced are there, whole and once; the tables satisfy their constraints.

Seen to fail: with is_committed = false in find_out() test_answer_lost (twice appended); with
is_committed = true test_not_sent; without the comparison in mark() test_late_transaction;
with known = 0 in send_changes() test_truncation_taken_back; without losses_note(), or
without the processes in find_lost(), test_names_taken_back; with losses_tell() = false
test_saved_again; with synchronous_commit = off for all calls test_kill_server.
"""

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg

import support
from proxy import Proxy
from support import FileSystemTest, Mount, digest

# Rounds of the random tests; more by hand, see test/README.md.
ROUNDS = int(os.environ.get("BLOBEXT_MOUNT_ROUNDS", "3"))
ROUNDS_BETWEEN_CHECKS = 10


def content_of(name, number):
    """A file's content, which says what it is: other parts cannot be mistaken for it."""
    source = random.Random(f"{name} {number}")
    size = source.choice([10, 3000, 40_000, 300_000])
    return f"{name} {number}\n".encode() + source.randbytes(size)


def replace(path, content):
    with open(path, "wb") as file:
        file.write(content)


def sync_directory(path):
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def sync_elsewhere(path):
    """The errno of fsync() in another process."""
    return subprocess.run([sys.executable, "-B", __file__, "sync", path], check=False).returncode


def save(path, content):
    """As an editor does: another file, synced and renamed.  The name is durable after fsync()."""
    with open(path + ".new", "wb") as file:
        file.write(content)
        os.fsync(file.fileno())
    os.rename(path + ".new", path)
    sync_directory(os.path.dirname(path))


def append_line(path, number):
    """Once, also when it is called again after an error."""
    line = f"{number}\n".encode()
    if os.path.exists(path):
        with open(path, "rb") as file:
            if line in file.readlines()[-1:]:
                return
    with open(path, "ab") as file:
        file.write(line)


def work(directory, name, number):
    """Write files, and print the number of each when it is closed.  Steps that fail while the
    server is away are done again.  When the program is dead and its mount gone, nothing may go to
    the directory below it."""
    os.chdir(directory)
    directory = "."
    while True:
        path = os.path.join(directory, f"{name}{number % 7}")
        try:
            if number % 3 == 0:
                replace(path, content_of(name, number))
            elif number % 3 == 1:
                save(path, content_of(name, number))
            else:
                append_line(os.path.join(directory, f"{name}.log"), number)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ESTALE, errno.ENOENT):
                raise
            continue
        print(number, flush=True)
        number += 1


class Workers:
    """Processes that write until they cannot."""

    def __init__(self, directory, names, first):
        self.done = {name: first - 1 for name in names}
        self.processes = {
            name: subprocess.Popen([sys.executable, "-B", __file__, "work", directory, name,
                                    str(first)],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for name in names}
        self.threads = [threading.Thread(target=self.listen, args=item)
                        for item in self.processes.items()]
        for thread in self.threads:
            thread.start()

    def listen(self, name, process):
        for line in process.stdout:
            self.done[name] = int(line)

    def wait(self, at_least):
        support.wait_until(lambda: min(self.done.values()) >= at_least, "work")

    def stop(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
        for thread in self.threads:
            thread.join()
        for process in self.processes.values():
            process.stdout.close()


class CrashTest(FileSystemTest):
    def wait_for_server(self):
        def connects():
            self.sql.close()
            try:
                self.connect()
                return True
            except psycopg.OperationalError:
                return False

        support.wait_until(connects, "the server")

    # ---- one lost connection ----

    def run_with_cuts(self, moment):
        """Each kind of change loses its connection once."""
        proxy = Proxy()
        with Mount("fs=docs,timeout=0", proxy.conninfo()) as mount:
            for call in ("create", "mkdir", "symlink", "link", "rename", "write", "append", "patch",
                         "truncate", "setattr", "unlink", "rmdir", "COMMIT"):
                proxy.cut(call if call == "COMMIT" else f"docs.{call}(", moment)
            path = mount.path("f")
            with open(path, "wb") as file:
                file.write(b"one ")
            with open(path, "ab") as file:
                file.write(b"two ")
            with open(path, "r+b") as file:
                file.seek(1)
                file.write(b"N")
            os.truncate(path, 7)
            os.mkdir(mount.path("d"))
            os.link(path, mount.path("d/g"))
            os.rename(path, mount.path("d/f"))
            os.symlink("f", mount.path("d/s"))
            os.chmod(mount.path("d/f"), 0o600)
            os.unlink(mount.path("d/g"))
            os.mkdir(mount.path("e"))
            os.rmdir(mount.path("e"))
            large = self.bytes(12_000_000)
            with open(mount.path("large"), "wb") as file:
                file.write(large)
            self.assertEqual(proxy.rules, [])
            self.assertEqual(proxy.cuts, 13)
            self.assertEqual(self.server_read("/d/f"), b"oNe two")
            self.assertEqual(mount.read("d/s"), b"oNe two")
            self.assertEqual(os.stat(mount.path("d/f")).st_nlink, 1)
            self.assertEqual(sorted(os.listdir(mount.path("d"))), ["f", "s"])
            self.assertEqual(sorted(os.listdir(mount.directory)), ["d", "large"])
            self.assertEqual(digest(self.server_read("/large")), digest(large))
        proxy.close()

    def test_not_sent(self):
        """A request that was not sent is sent again."""
        self.run_with_cuts("before")

    def test_answer_lost(self):
        """A request whose answer was lost is done once."""
        self.run_with_cuts("after")

    def test_lost_in_between(self):
        """A request that was cut in between is done once."""
        self.run_with_cuts("during")

    def test_late_transaction(self):
        """The old backend is held up, and goes on after the new one has asked for the mark."""
        proxy = Proxy()
        with Mount("fs=docs", proxy.conninfo()) as mount, psycopg.connect() as blocker:
            with open(mount.path("log"), "ab") as file:
                file.write(b"one\n")
            blocker.execute("SELECT FROM docs.inode WHERE kind = 'f' FOR UPDATE")
            proxy.cut("docs.append(", "during")

            def append():
                with open(mount.path("log"), "ab") as file:
                    file.write(b"two\n")

            thread = threading.Thread(target=append)
            thread.start()
            # The old backend, and then the new one.
            support.wait_until(lambda: self.one(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND strpos(query, 'docs.append(') > 0") == 2, "two appends")
            blocker.commit()
            thread.join()
            support.wait_until(lambda: self.one(
                "SELECT count(*) FROM pg_stat_activity WHERE state = 'active'"
                " AND strpos(query, 'docs.append(') > 0 AND pid <> pg_backend_pid()") == 0,
                "their ends")
            self.assertEqual(self.server_read("/log"), b"one\ntwo\n")
        proxy.close()

    # ---- the server ----

    @staticmethod
    def kill_postmaster():
        path = os.path.join(support.DATA, "postmaster.pid")
        with open(path, encoding="utf8") as file:
            os.kill(int(file.readline()), signal.SIGKILL)

    @staticmethod
    def start_killed_server():
        """The backends notice their postmaster's death, and no server starts before that."""
        support.wait_until(lambda: subprocess.run(
            ["pg_ctl", "-D", support.DATA, "-l", support.LOG, "-w", "start"], check=False,
            capture_output=True).returncode == 0, "the server's start")

    def crash_server(self):
        support.restart_server("immediate")
        self.wait_for_server()

    def test_server_restarts(self):
        """Open files go on."""
        with Mount("fs=docs") as mount:
            with open(mount.path("f"), "wb") as file:
                file.write(b"before ")
                os.fsync(file.fileno())
                self.crash_server()
                file.write(b"after")
            self.assertEqual(self.server_read("/f"), b"before after")

    def test_truncation_taken_back(self):
        """With sync=async a crash takes back the last commits; an append that relies on it
        is refused."""
        with Mount("fs=docs,sync=async") as mount:
            with open(mount.path("f"), "wb") as file:
                file.write(b"0123456789")
            self.sql.execute("CHECKPOINT")
            file = os.open(mount.path("f"), os.O_WRONLY | os.O_APPEND)
            for _ in range(20):
                os.ftruncate(file, 0)
                os.write(file, b"0123456789")
                os.fsync(file)
                os.ftruncate(file, 3)
                os.fsync(file)
                self.crash_server()
                if self.server_read("/f") != b"012":
                    break
            else:
                self.skipTest("the crash came after the commit was written, each time")
            found = self.server_read("/f")
            os.write(file, b"new")
            with self.assertRaises(OSError) as raised:
                os.close(file)
            self.assertEqual(raised.exception.errno, errno.ESTALE)
            self.assertEqual(self.server_read("/f"), found)
            support.wait_until(lambda: mount.read("f") == found, "what the server has")

    def slow_wal_writer(self):
        """Commits that do not wait are lost by a crash, most of the time."""
        def set_delay(command):
            self.sql.execute(f"ALTER SYSTEM {command}")
            self.sql.execute("SELECT pg_reload_conf()")

        set_delay("SET wal_writer_delay = 10000")
        self.addCleanup(set_delay, "RESET wal_writer_delay")

    def test_names_taken_back(self):
        """A crash takes back what two threads have renamed: fsync() tells both, though another
        process was told before."""
        def is_renamed(name):
            return self.one("SELECT count(*) FROM docs.dentry WHERE name = %s", name) == 1

        self.slow_wal_writer()
        with Mount("fs=docs") as mount, ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
            for attempt in range(20):
                names = [f"{program} {attempt}" for program in ("one", "two")]
                for program, name in zip((one, two), names):
                    replace(mount.path(name), b"content")
                for program, name in zip((one, two), names):
                    program.submit(os.rename, mount.path(name), mount.path(name + " new")).result()
                self.crash_server()
                if all(is_renamed(name.encode()) for name in names):
                    break
                for program in (one, two):
                    program.submit(sync_directory, mount.directory).exception()
            else:
                self.skipTest("the crash came after the commits were written, each time")
            # The first of all; the thread itself; another thread of its process.
            self.assertEqual(sync_elsewhere(mount.directory), errno.EIO)
            with self.assertRaises(OSError) as raised:
                one.submit(sync_directory, mount.directory).result()
            self.assertEqual(raised.exception.errno, errno.EIO)
            with self.assertRaises(OSError) as raised:
                sync_directory(mount.directory)
            self.assertEqual(raised.exception.errno, errno.EIO)
            for program in (one, two):
                program.submit(sync_directory, mount.directory).result()
            self.assertEqual(sync_elsewhere(mount.directory), 0)

    def test_saved_again(self):
        """A crash takes a rename back; the program that is told saves again, at once, while the
        kernel may have the names of before."""
        self.slow_wal_writer()
        with Mount("fs=docs") as mount:
            for number in range(20):
                old, new = f"old {number}".encode(), f"new {number}".encode()
                save(mount.path("f"), old)
                with open(mount.path("f.new"), "wb") as file:
                    file.write(new)
                os.rename(mount.path("f.new"), mount.path("f"))
                os.stat(mount.path("f"))
                self.crash_server()
                was_lost = self.server_read("/f") == old
                try:
                    sync_directory(mount.directory)
                except OSError:
                    save(mount.path("f"), new)
                self.assertEqual(self.server_read("/f"), new)
                if was_lost:
                    break
            else:
                self.skipTest("the crash came after the commit was written, each time")

    def check_work(self, directory, workers, since):
        """All that was closed is there: as it was closed, or as something later."""
        for name, last in workers.done.items():
            for slot in range(7):
                closed = max((n for n in range(since, last + 1) if n % 7 == slot and n % 3 < 2),
                             default=None)
                path = os.path.join(directory, f"{name}{slot}")
                if closed is None:
                    continue
                with open(path, "rb") as file:
                    found = file.read()
                begun = last + 1
                if begun % 7 == slot and begun % 3 == 0 and \
                        content_of(name, begun).startswith(found):
                    continue            # replaced in place by a worker that was killed meanwhile
                allowed = [closed] + [n for n in [begun] if n % 7 == slot and n % 3 < 2]
                self.assertIn(found, [content_of(name, n) for n in allowed],
                              f"{path}: {found[:20]}, {allowed}")
            log = os.path.join(directory, f"{name}.log")
            lines = []
            if os.path.exists(log):
                with open(log, "rb") as file:
                    lines = [int(line) for line in file.read().splitlines()]
            expected = [n for n in range(last + 1) if n % 3 == 2]
            self.assertIn(lines, [expected, expected + [last + 1]], log)

    def start_anew(self, mount, workers):
        """The number from which both workers can go on: their logs say that both came so far."""
        first = max(workers.done.values()) + 2
        for name in workers.done:
            with open(mount.path(f"{name}.log"), "wb") as file:
                file.write(b"".join(f"{number}\n".encode() for number in range(first)
                                    if number % 3 == 2))
        self.check_tables()
        return first

    def test_kill_server(self):
        """The server is killed at random, the program goes on; then everything is there."""
        moment = random.Random(support.SEED)
        first = 0
        with Mount("fs=docs") as mount:
            for begun in range(0, ROUNDS, ROUNDS_BETWEEN_CHECKS):
                workers = Workers(mount.directory, ["a", "b"], first)
                ended = min(ROUNDS, begun + ROUNDS_BETWEEN_CHECKS)
                try:
                    for _ in range(begun, ended):
                        workers.wait(max(workers.done.values()) + 5)
                        time.sleep(moment.random() / 10)
                        self.kill_postmaster()
                        time.sleep(0.2)
                        self.start_killed_server()
                        self.wait_for_server()
                    workers.wait(max(workers.done.values()) + 10)
                finally:
                    workers.stop()
                with Mount("fs=docs") as other:
                    self.check_work(other.directory, workers, first)
                first = self.start_anew(mount, workers)
                self.say_rounds("server", ended)

    def test_kill_program(self):
        """The program is killed at random; closed files are at the server."""
        moment = random.Random(support.SEED)
        first = 0
        for number in range(1, ROUNDS + 1):
            with Mount("fs=docs") as mount:
                workers = Workers(mount.directory, ["a", "b"], first)
                workers.wait(first + 6)
                time.sleep(moment.random() / 10)
                mount.kill()
                workers.stop()
                mount.start()
                self.check_work(mount.directory, workers, first)
                first = self.start_anew(mount, workers)
            self.say_rounds("program", number)

    @staticmethod
    def say_rounds(killed, number):
        """A long run may be ended early: this is how far it came."""
        if ROUNDS > ROUNDS_BETWEEN_CHECKS and number % ROUNDS_BETWEEN_CHECKS == 0:
            print(f"# {killed} killed {number} times, all is there", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif sys.argv[1:2] == ["sync"]:
        try:
            sync_directory(sys.argv[2])
        except OSError as failure:
            sys.exit(failure.errno)
    else:
        support.main()
