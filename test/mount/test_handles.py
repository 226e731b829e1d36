"""Handles, with which file servers such as NFS remember files: open_by_handle_at().

Only root may open a file by its handle.  Newer kernels (6.11) let the root of a user namespace open
directories of file systems that were mounted there, so this runs itself again as that.

Seen to fail: with lookup() in place of lookup_any() both tests.
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
    def open(self, mount, handle):
        """A descriptor of a directory."""
        root = os.open(mount.directory, os.O_RDONLY)
        file = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY | os.O_DIRECTORY)
        number = ctypes.get_errno()
        os.close(root)
        if file < 0 and number == errno.EPERM:
            self.skipTest("this kernel lets only root open directories by handles")
        if file < 0:
            raise OSError(number, os.strerror(number))
        return file

    def look(self, mount, handle):
        """The path of the directory, and its entries."""
        directory = self.open(mount, handle)
        try:
            path = os.readlink(f"/proc/self/fd/{directory}")
            return os.path.relpath(path, mount.directory), os.listdir(directory)
        finally:
            os.close(directory)

    def test_restart(self):
        """The kernel and the program have forgotten the directory."""
        with Mount("fs=docs,timeout=0") as mount:
            os.makedirs(mount.path("a/b/c"))
            handles = [handle_of(mount.path(name)) for name in ("a/b", "a/b/c", "a", "")]
            mount.stop()
            self.sql.execute("SELECT blobfs.write('docs', '/a/b/f', 'content')")
            mount.start()
            self.assertEqual(self.look(mount, handles[0]), ("a/b", ["c", "f"]))
            self.assertEqual(self.look(mount, handles[1]), ("a/b/c", []))
            self.assertEqual(self.look(mount, handles[2]), ("a", ["b"]))
            self.assertEqual(self.look(mount, handles[3]), (".", ["a"]))

    def test_changes(self):
        """A handle leads to a moved directory, and is stale when that is gone."""
        with Mount("fs=docs,timeout=0") as mount:
            os.makedirs(mount.path("a/b"))
            os.mkdir(mount.path("c"))
            handle = handle_of(mount.path("a/b"))
            self.sql.execute("SELECT blobfs.rename('docs', '/a/b', '/c/d')")
            mount.stop()
            mount.start()
            self.assertEqual(self.look(mount, handle), ("c/d", []))
            mount.stop()
            self.sql.execute("SELECT blobfs.unlink('docs', '/c/d')")
            mount.start()
            with self.assertRaises(OSError) as raised:
                self.open(mount, handle)
            self.assertEqual(raised.exception.errno, errno.ESTALE)


if __name__ == "__main__":
    command = ["unshare", "-Urm", sys.executable, "-B", __file__, *sys.argv[1:]]
    if IN_NAMESPACE not in os.environ and \
            subprocess.run(["unshare", "-Urm", "true"], check=False).returncode == 0:
        os.environ[IN_NAMESPACE] = "1"
        os.execvp(command[0], command)
    support.main()
