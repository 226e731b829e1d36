"""Handles, with which file servers such as NFS remember files: open_by_handle_at().

Only root may open a file by its handle; newer kernels (6.11) let the root of a user namespace do so
with file systems that were mounted there.  So this runs itself again as that.

Seen to fail: with ids from a counter in choose_id() both tests.
"""

import ctypes
import errno
import os
import subprocess
import sys

import support
from support import FileSystemTest, Mount

AT_FDCWD = -100
HANDLE_BYTES = 128
IN_NAMESPACE = "BLOBEXT_MOUNT_USER_NAMESPACE"


class FileHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int),
                ("data", ctypes.c_char * HANDLE_BYTES)]


libc = ctypes.CDLL(None, use_errno=True)


def handle_of(path):
    handle, mount_id = FileHandle(HANDLE_BYTES), ctypes.c_int()
    if libc.name_to_handle_at(AT_FDCWD, os.fsencode(path), ctypes.byref(handle),
                              ctypes.byref(mount_id), 0) != 0:
        raise OSError(ctypes.get_errno(), f"handle of {path}")
    return handle


class HandlesTest(FileSystemTest):
    def open(self, mount, handle, flags=os.O_RDONLY):
        """A descriptor."""
        directory = os.open(mount.directory, os.O_RDONLY)
        file = libc.open_by_handle_at(directory, ctypes.byref(handle), flags)
        number = ctypes.get_errno()
        os.close(directory)
        if file < 0 and number == errno.EPERM:
            self.skipTest("this kernel lets only root open files by handles")
        if file < 0:
            raise OSError(number, os.strerror(number))
        return file

    def read(self, mount, handle):
        with os.fdopen(self.open(mount, handle), "rb") as file:
            return file.read()

    def test_after_a_restart(self):
        with Mount("fs=docs,timeout=0") as mount:
            os.makedirs(mount.path("a/b"))
            for name in ("a/b/f", "a/g"):
                with open(mount.path(name), "wb") as file:
                    file.write(name.encode())
            handles = [handle_of(mount.path(name)) for name in ("a/b/f", "a/g", "a/b", "a")]
            mount.stop()
            mount.start()
            self.assertEqual(self.read(mount, handles[0]), b"a/b/f")
            self.assertEqual(self.read(mount, handles[1]), b"a/g")
            # A directory has its place in the tree, by way of those above it.
            directory = self.open(mount, handles[2])
            self.assertEqual(os.readlink(f"/proc/self/fd/{directory}"), mount.path("a/b"))
            self.assertEqual(os.listdir(directory), ["f"])
            os.close(directory)

    def test_changes(self):
        with Mount("fs=docs,timeout=0") as mount:
            with open(mount.path("f"), "wb") as file:
                file.write(b"first")
            handle = handle_of(mount.path("f"))
            mount.stop()
            self.put("/f", b"second")
            mount.start()
            self.assertEqual(self.read(mount, handle), b"second")
            file = self.open(mount, handle, os.O_RDWR)
            os.write(file, b"SEC")
            os.close(file)
            self.assertEqual(self.server_read("/f"), b"SECond")
            self.sql.execute("SELECT blobfs.rename('docs', '/f', '/g')")
            self.assertEqual(self.read(mount, handle), b"SECond")
            mount.stop()
            self.sql.execute("SELECT blobfs.unlink('docs', '/g')")
            mount.start()
            with self.assertRaises(OSError) as raised:
                self.read(mount, handle)
            self.assertEqual(raised.exception.errno, errno.ESTALE)


if __name__ == "__main__":
    command = ["unshare", "-Urm", sys.executable, "-B", __file__, *sys.argv[1:]]
    if IN_NAMESPACE not in os.environ and \
            subprocess.run(["unshare", "-Urm", "true"], check=False).returncode == 0:
        os.environ[IN_NAMESPACE] = "1"
        os.execvp(command[0], command)
    support.main()
