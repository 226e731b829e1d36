"""Direct asynchronous writes, beside reads through the kernel's pages.

Seen to fail without pages_drop() for direct writes in op_write(): the last page was the old one.
"""

import ctypes
import mmap
import os
import platform
import signal
import threading

import support
from support import FileSystemTest, Mount

# The numbers of io_setup(), io_destroy(), io_submit(), io_getevents(), pread64().
SETUP, DESTROY, SUBMIT, GETEVENTS, PREAD = {
    "x86_64": (206, 207, 209, 208, 17), "aarch64": (0, 1, 2, 4, 67)}[platform.machine()]
WRITE = 1
MB = 1 << 20
# More requests than the kernel keeps at the program at a time (session.c).
SIZE = 70 * MB

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class Request(ctypes.Structure):
    """struct iocb"""
    _fields_ = [("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("operation", ctypes.c_uint16), ("priority", ctypes.c_int16),
                ("file", ctypes.c_uint32), ("buffer", ctypes.c_uint64),
                ("bytes", ctypes.c_uint64), ("offset", ctypes.c_int64),
                ("reserved", ctypes.c_uint64), ("more", ctypes.c_uint32 * 2)]


class Event(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("request", ctypes.c_uint64),
                ("result", ctypes.c_int64), ("more", ctypes.c_int64)]


def call(number, *arguments):
    found = libc.syscall(ctypes.c_long(number), *arguments)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def waits_in(thread, number):
    """Whether a thread of this process waits in that system call, or has ended."""
    try:
        with open(f"/proc/self/task/{thread.native_id}/syscall", encoding="utf8") as file:
            return file.read().split()[0] == str(number)
    except FileNotFoundError:
        return True


class DirectTest(FileSystemTest):
    def read_during_write(self, mount, written, read, content):
        """Write all of the file while the last page is asked for: it comes from requests that are
        answered before the last ones of the write.  (Mostly: it may be in memory still.  So there
        are several rounds.)"""
        context = ctypes.c_ulong(0)
        events = (Event * 1)()
        request = Request(operation=WRITE, file=written, bytes=SIZE,
                          buffer=ctypes.addressof(ctypes.c_char.from_buffer(content)))
        one = ctypes.c_long(1)
        call(SETUP, one, ctypes.byref(context))
        submitted = []
        threads = [
            threading.Thread(target=lambda: submitted.append(call(
                SUBMIT, context, one, ctypes.byref(ctypes.pointer(request))))),
            threading.Thread(target=os.pread, args=(read, 100, SIZE - 100))]
        os.posix_fadvise(read, 0, 0, os.POSIX_FADV_DONTNEED)
        os.kill(mount.process.pid, signal.SIGSTOP)
        try:
            for thread, number in zip(threads, (SUBMIT, PREAD)):
                thread.start()
                support.wait_until(lambda: waits_in(thread, number), "the system call")
        finally:
            os.kill(mount.process.pid, signal.SIGCONT)
        for thread in threads:
            thread.join()
        self.assertEqual(submitted, [1])
        call(GETEVENTS, context, one, one, events, None)
        call(DESTROY, context)
        self.assertEqual(events[0].result, SIZE)

    def test_pages_are_new_after_an_asynchronous_direct_write(self):
        """A page that was read while requests of the write waited is read again after the next
        open() of the file, and soon where that was open before."""
        content = mmap.mmap(-1, SIZE)
        with Mount("fs=docs") as mount:
            with open(mount.path("f"), "wb") as file:
                file.truncate(SIZE)
            written = os.open(mount.path("f"), os.O_RDWR | os.O_DIRECT)
            read = os.open(mount.path("f"), os.O_RDONLY)
            # One page is a request of its own, which the kernel sends at once.
            os.posix_fadvise(read, 0, 0, os.POSIX_FADV_RANDOM)
            for byte in (b"a", b"b", b"c", b"d", b"e"):
                content.seek(0)
                content.write(byte * SIZE)
                self.read_during_write(mount, written, read, content)
                with open(mount.path("f"), "rb") as file:
                    file.seek(SIZE - 100)
                    self.assertEqual(file.read(), byte * 100)
                support.wait_until(lambda: os.pread(read, 100, SIZE - 100) == byte * 100,
                                   "the new page")
            os.close(read)
            os.close(written)
            self.assertEqual(support.file_digest(mount.path("f")), support.digest(content[:]))


if __name__ == "__main__":
    support.main()
