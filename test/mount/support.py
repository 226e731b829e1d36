"""What the tests of the suite "mount" share: mounts, the server, tables with files.

BLOBFS is the program, BLOBEXT_MOUNT_DATA the server's data directory; connection parameters come
from the environment.
"""

import fcntl
import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import psycopg

PROGRAM = os.environ["BLOBFS"]
DATA = os.environ["BLOBEXT_MOUNT_DATA"]
LOG = os.environ["BLOBEXT_MOUNT_LOG"]
# For what must come; no test waits so long if all is well.
PATIENCE_SECONDS = 120
# So that CI runs what it ran before; a soak sets others.
SEED = int(os.environ.get("BLOBEXT_MOUNT_SEED", "20261"))


def wait_until(condition, what):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {PATIENCE_SECONDS} s")
        time.sleep(0.01)


def is_mounted(directory):
    with open("/proc/self/mountinfo", encoding="utf8") as file:
        return any(line.split()[4] == directory for line in file)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def file_digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() \
            if hasattr(hashlib, "file_digest") else digest(file.read())


def can_lock(file):
    """flock() of the whole file, if no other open file has a lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


class Mount:
    """A mount by the program in the foreground; a context manager."""

    def __init__(self, options, conninfo="", descriptors=None):
        """descriptors: the program's limits, soft and hard; None: those of this process."""
        self.options = options
        self.descriptors = descriptors or resource.getrlimit(resource.RLIMIT_NOFILE)
        self.conninfo = conninfo or f"dbname={os.environ['PGDATABASE']}"
        self.directory = tempfile.mkdtemp(prefix="mount.")
        self.process = None
        self.errors = tempfile.TemporaryFile("w+")
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [PROGRAM, "-f", "-o", self.options, self.conninfo, self.directory],
            stderr=self.errors,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, self.descriptors))
        try:
            wait_until(lambda: is_mounted(self.directory) or self.process.poll() is not None,
                       "the mount")
            if self.process.poll() is not None:
                raise AssertionError("blobfs has ended: " + self.messages())
        except BaseException:
            self.stop()
            raise

    def messages(self):
        self.errors.seek(0)
        return self.errors.read()

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def read(self, *names):
        with open(self.path(*names), "rb") as file:
            return file.read()

    def memory_kb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf8") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1])
        raise AssertionError("no VmHWM")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        subprocess.run(["fusermount3", "-u", "-z", self.directory], check=True)

    def stop(self):
        """Unmount; the program's exit status."""
        if is_mounted(self.directory):
            subprocess.run(["fusermount3", "-u", "-z", self.directory], check=True)
        if self.process.poll() is None:
            try:
                self.process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if error[0] is not None:
            self.process.kill()         # files may be open still
            print("# blobfs said: " + self.messages())
        status = self.stop()
        messages = self.messages()
        self.errors.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        if error[0] is None and status != 0:
            raise AssertionError(f"blobfs ended with status {status}: {messages}")


def refused(options, conninfo=""):
    """The message of a mount that must not come about."""
    directory = tempfile.mkdtemp(prefix="mount.")
    try:
        done = subprocess.run(
            [PROGRAM, "-f", "-o", options,
             conninfo or f"dbname={os.environ['PGDATABASE']}", directory],
            capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
        assert done.returncode == 1, (done.returncode, done.stderr)
        return done.stderr
    finally:
        os.rmdir(directory)


def control_server(*arguments):
    subprocess.run(["pg_ctl", "-D", DATA, "-l", LOG, "-w", *arguments], check=True,
                   stdout=subprocess.DEVNULL)


def restart_server(mode="fast"):
    control_server("-m", mode, "restart")


class MountTest(unittest.TestCase):
    """A database of its own with the extensions, and a connection to it."""

    extensions = ("blobext", "blobfs")

    @classmethod
    def setUpClass(cls):
        cls.database = cls.__name__.lower()
        with psycopg.connect(dbname="postgres", autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{cls.database}"')
            connection.execute(f'CREATE DATABASE "{cls.database}"')
        os.environ["PGDATABASE"] = cls.database
        cls.connect()
        for extension in cls.extensions:
            cls.sql.execute(f"CREATE EXTENSION {extension}")
        cls.random = random.Random(SEED)

    @classmethod
    def tearDownClass(cls):
        cls.sql.close()
        os.environ["PGDATABASE"] = "postgres"

    @classmethod
    def connect(cls):
        cls.sql = psycopg.connect(autocommit=True)
        cls.sql.execute("SET client_min_messages = warning")

    def one(self, query, *parameters):
        row = self.sql.execute(query, parameters).fetchone()
        return row[0] if row else None

    def make_table(self, name, content="blobstate", path='text COLLATE "C"'):
        self.sql.execute(f"DROP TABLE IF EXISTS {name}")
        self.sql.execute(f"CREATE TABLE {name} (path {path} PRIMARY KEY, content {content})")

    def put(self, table, path, content):
        self.sql.execute(f"INSERT INTO {table} VALUES (%s, %s) ON CONFLICT (path)"
                         " DO UPDATE SET content = EXCLUDED.content", (path, content))

    def bytes(self, size):
        return self.random.randbytes(size)


class FileSystemTest(MountTest):
    """The database has a file system "docs", empty and sound for each test; its root belongs to the
    user that mounts it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.make_file_system()

    @classmethod
    def make_file_system(cls):
        cls.sql.execute("SELECT blobfs.create('docs', %s, %s)", (os.getuid(), os.getgid()))

    def tearDown(self):
        self.check_tables()
        self.sql.execute("SELECT blobfs.drop('docs')")
        self.make_file_system()

    def check_tables(self):
        self.assertEqual(self.sql.execute("SELECT * FROM blobfs.check('docs')").fetchall(), [])

    def server_read(self, path):
        return self.one("SELECT blobfs.read('docs', %s)::bytea", path)

    def put(self, path, data):
        self.sql.execute("SELECT blobfs.write('docs', %s, %s)", (path, data))


def main():
    print(f"# seed {SEED}", flush=True)
    unittest.main()
