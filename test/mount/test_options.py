"""Options: wrong ones are refused at the start, with a message; relative paths stay right.

Seen to fail before they were checked: all of them.
"""

import os
import subprocess
import tempfile

import support
from support import FileSystemTest, Mount, refused

TABLE = "table=document,path=path,content=content"


class OptionsTest(FileSystemTest):
    def test_relative_spool(self):
        """A spool is looked for where the program was started, also later."""
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as directory:
            os.mkdir(os.path.join(directory, "spool"))
            os.chdir(directory)
            try:
                with Mount("fs=docs,spool=spool") as mount:
                    content = self.bytes(5_000_000)
                    with open(mount.path("f"), "wb") as file:
                        file.write(content)
                    self.assertEqual(self.server_read("/f"), content)
                self.assertIn('directory "other": No such file', refused("fs=docs,spool=other"))
            finally:
                os.chdir(before)

    def test_spool_is_a_file(self):
        """A spool that is no directory is refused at the start."""
        with tempfile.NamedTemporaryFile() as file:
            self.assertIn(f'"{file.name}" is not a directory',
                          refused(f"fs=docs,spool={file.name}"))

    def test_mount_on_a_file(self):
        """A file is no place for a mount."""
        with tempfile.NamedTemporaryFile() as file:
            done = subprocess.run(
                [support.PROGRAM, "-f", "-o", "fs=docs", f"dbname={os.environ['PGDATABASE']}",
                 file.name], capture_output=True, text=True, check=False,
                timeout=support.PATIENCE_SECONDS)
            self.assertEqual((done.returncode, done.stderr),
                             (1, f'blobfs: "{file.name}" is not a directory\n'))

    def test_numbers(self):
        """A number with something behind it, or out of range, is refused with what it should be."""
        seconds = "a number of seconds"
        connections = "a whole number from 1 to 1000"
        cache = "a whole number of MB from 8 to 1048576"
        for options, expected in {
                "timeout=1s": seconds, "timeout=": seconds, "timeo=1e3": seconds,
                "timeo=-1": seconds, "timeout=nan": seconds, "timeo=1.2.3": seconds,
                "connections=3junk": connections, "connections=1.5": connections,
                "connections= 3": connections, "connections=4294967299": connections,
                "connections=0x8": connections, "connections=-3": connections,
                "cache=12x": cache, "cache=7": cache, "cache=": cache,
                "uid=root": "the number of a user", "uid=4294967295": "the number of a user",
                "gid=1,gid=1x": "the number of a group",
                "umask=8": "an octal number up to 777", "umask=1000": "an octal number up to 777",
                "max_read=4k": "a whole number of bytes"}.items():
            wrong = options.rsplit(",", maxsplit=1)[-1]
            self.assertEqual(refused(f"fs=docs,{options}"),
                             f'blobfs: option "{wrong}" needs {expected}\n')
        with Mount("fs=docs,timeout=.5,timeo=2.5,connections=3,cache=8,max_read=65536") as mount:
            self.put("/f", b"x" * 300_000)
            self.assertEqual(mount.read("f"), b"x" * 300_000)

    def test_types_of_columns(self):
        """A column of another type than times or modes have is refused with its type."""
        self.make_table("document")
        self.sql.execute("ALTER TABLE document ADD label text, ADD number int, ADD ratio float8,"
                         " ADD day date, ADD short smallint")
        self.sql.execute("INSERT INTO document (path, content, day, short)"
                         " VALUES ('f', 'x', '2001-02-03', 384)")
        times = "timestamptz, timestamp or date"
        for option, kind, expected in [
                ("mtime=label", "text", times), ("mtime=number", "integer", times),
                ("mtime=content", "blobstate", times), ("mode=label", "text", "an integer"),
                ("mode=ratio", "double precision", "an integer")]:
            name, column = option.split("=")
            self.assertEqual(refused(f"{TABLE},{option}"),
                             f'blobfs: option "{name}": column "{column}" is of type {kind},'
                             f" not {expected}\n")
        with Mount(f"{TABLE},mtime=day,mode=short", f"dbname={os.environ['PGDATABASE']}"
                   " options='-c TimeZone=UTC'") as mount:
            found = os.stat(mount.path("f"))
            self.assertEqual((found.st_mtime, found.st_mode & 0o7777), (981158400, 0o600))

    def test_read_write(self):
        """A table or snapshot says that it is read-only in spite of rw; the last of both counts."""
        self.make_table("document")
        self.sql.execute("SELECT blobfs.snapshot('docs', 'one')")
        for options, what in [(TABLE, "a table"),
                              ("fs=docs,at=one", "a snapshot of a file system")]:
            with Mount(f"rw,{options}") as mount:
                self.assertEqual(mount.messages().splitlines()[0],
                                 f'blobfs: {what} is mounted read-only, in spite of option "rw"')
                self.assertTrue(os.statvfs(mount.directory).f_flag & os.ST_RDONLY)
            with Mount(f"rw,{options},ro") as mount:
                self.assertNotIn("rw", mount.messages())
        for options, is_read_only in [("ro,rw", False), ("rw,ro", True)]:
            with Mount(f"fs=docs,{options}") as mount:
                self.assertEqual(bool(os.statvfs(mount.directory).f_flag & os.ST_RDONLY),
                                 is_read_only)
                self.assertEqual(mount.messages(), "")


if __name__ == "__main__":
    support.main()
