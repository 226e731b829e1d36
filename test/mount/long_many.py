"""Many entries, and a clock that is set back.

By hand: test/run mount long_many.  The clock needs Debian's package libfaketime.
"""

import glob
import os
import tempfile
import time
import unittest

import support
from support import FileSystemTest, Mount

ENTRIES = 200_000
FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")


class ManyTest(FileSystemTest):
    def test_directory(self):
        """A directory of 200,000 files is listed whole, by name, and its files are found."""
        self.sql.execute("SELECT blobfs.mkdir('docs', '/d')")
        self.sql.execute("SELECT count(r) FROM docs.getattr(1), generate_series(1, %s) AS n,"
                         " LATERAL docs.create(NULL, (SELECT ino FROM blobfs.stat('docs', '/d')),"
                         " convert_to('f' || n, 'UTF8'), 420, 0, 0, NULL, NULL) AS r", (ENTRIES,))
        with Mount("fs=docs") as mount:
            directory = mount.path("d")
            for what in ("first", "second"):
                started = time.monotonic()
                names = os.listdir(directory)
                print(f"# {what} listing: {time.monotonic() - started:.1f} s", flush=True)
                self.assertEqual(len(names), ENTRIES)
                self.assertEqual(set(names), {f"f{n}" for n in range(1, ENTRIES + 1)})
            started = time.monotonic()
            with os.scandir(directory) as entries:
                inodes = {entry.stat().st_ino for entry in entries}
            print(f"# stat of all: {time.monotonic() - started:.1f} s,"
                  f" {mount.memory_kb() // 1024} MB", flush=True)
            self.assertEqual(len(inodes), ENTRIES)
            started = time.monotonic()
            with open(os.path.join(directory, "new"), "wb") as file:
                file.write(b"content")
            os.unlink(os.path.join(directory, "f77777"))
            self.assertLess(time.monotonic() - started, 10)
            names = set(os.listdir(directory))
            self.assertEqual(len(names), ENTRIES)
            self.assertIn("new", names)
            self.assertNotIn("f77777", names)

    @unittest.skipUnless(FAKETIME, "libfaketime is not installed")
    def test_clock(self):
        """When the clock of a mount's machine is set back by a day, files are made, changed and
        seen as before, and names still go out of date."""
        with tempfile.NamedTemporaryFile("w", prefix="clock.") as clock:
            def set_clock(text):
                clock.seek(0)
                clock.truncate()
                clock.write(text)
                clock.flush()

            set_clock("+0d")
            os.environ.update(LD_PRELOAD=FAKETIME[0], FAKETIME_TIMESTAMP_FILE=clock.name,
                              FAKETIME_NO_CACHE="1", FAKETIME_DONT_FAKE_MONOTONIC="1",
                              DONT_FAKE_MONOTONIC="1")
            try:
                mount = Mount("fs=docs,timeout=1")
            finally:
                for name in ("LD_PRELOAD", "FAKETIME_TIMESTAMP_FILE", "FAKETIME_NO_CACHE",
                             "FAKETIME_DONT_FAKE_MONOTONIC", "DONT_FAKE_MONOTONIC"):
                    del os.environ[name]
            with mount, Mount("fs=docs,timeout=0") as other:
                for number, moment in enumerate(("+0d", "-1d", "+1d", "-1d", "+0d")):
                    set_clock(moment)
                    for name in ("f", f"f{number}"):
                        with open(mount.path(name), "wb") as file:
                            file.write(b"%d" % number)
                        self.assertEqual(other.read(name), b"%d" % number)
                        self.assertEqual(mount.read(name), b"%d" % number)
                    with open(mount.path("log"), "ab") as file:
                        file.write(b"%d" % number)
                    self.put("/g", b"by SQL, %d" % number)
                    support.wait_until(lambda: mount.read("g") == b"by SQL, %d" % number,
                                       "the new version")
                    age = time.time() - os.stat(mount.path("f")).st_mtime
                    self.assertAlmostEqual(age, {"+0d": 0, "-1d": 86400, "+1d": -86400}[moment],
                                           delta=100)
                self.assertEqual(other.read("log"), b"01234")


if __name__ == "__main__":
    support.main()
