"""File servers of others on a mount, and the cases that all of them must pass.

A gateway serves a directory on a port of 127.0.0.1.  Its methods are what a client of the protocol
does: put(), get() and so on, with names relative to the directory.
"""

import contextlib
import ctypes
import getpass
import http.client
import importlib.util
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import urllib.parse
import xml.etree.ElementTree

from support import PATIENCE_SECONDS, Mount, digest, wait_until

LARGE_BYTES = 12 << 20
MANY = 10_000


def find_program(name):
    """$NAME, or the program of that name; None: there is none."""
    return os.environ.get(name.upper()) or shutil.which(
        name, path=os.environ["PATH"] + ":/usr/local/sbin:/usr/sbin:/sbin")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


class Gateway:
    """A server's process; a context manager."""

    program = None
    environment = {}
    # Of the mount.
    options = "fs=docs"

    def __init__(self, directory, cache="0s"):
        """cache: for how long rclone trusts a listing; it lists again for each name after that."""
        self.directory = pathlib.Path(directory)
        self.cache = cache
        self.port = free_port()
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="gateway."))
        self.log = open(self.work / "log", "w+", encoding="utf8", errors="replace")
        self.process = subprocess.Popen(
            self.command(find_program(self.program)), stdout=self.log, stderr=self.log,
            stdin=subprocess.DEVNULL, env={**os.environ, **self.environment},
            # smbd ends its process group with itself.
            start_new_session=True)
        try:
            wait_until(lambda: answers(self.port) or self.process.poll() is not None, self.program)
            if self.process.poll() is not None:
                raise AssertionError(f"{self.program} has ended: {self.messages()}")
            self.connect()
        except BaseException:
            self.stop()
            raise

    def command(self, program):
        raise NotImplementedError

    def connect(self):
        pass

    def messages(self):
        self.log.seek(0)
        return self.log.read()

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.work)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if error[0] is not None:
            print(f"# {self.program} said: {self.messages()}")
        self.stop()


# ---- WebDAV ----

class WebDav(Gateway):
    program = "rclone"
    needed = ("rclone",)
    environment = {"RCLONE_CONFIG": "/dev/null"}

    def command(self, program):
        return [program, "serve", "webdav", "--addr", f"127.0.0.1:{self.port}",
                "--dir-cache-time", self.cache, str(self.directory)]

    def request(self, method, name, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request(method, "/" + urllib.parse.quote(name), body, headers)
        response = connection.getresponse()
        data = response.read()
        connection.close()
        if not 200 <= response.status < 300:
            raise OSError(f"{method} {name}: {response.status} {data[:200]!r}")
        return data

    def put(self, name, data):
        for parent in list(pathlib.PurePath(name).parents)[-2::-1]:
            if not (self.directory / parent).is_dir():
                self.request("MKCOL", f"{parent}/")
        self.request("PUT", name, data)

    def get(self, name):
        return self.request("GET", name)

    def get_range(self, name, start, length):
        return self.request("GET", name, Range=f"bytes={start}-{start + length - 1}")

    def delete(self, name):
        self.request("DELETE", name)

    def destination(self, name):
        return f"http://127.0.0.1:{self.port}/{urllib.parse.quote(name)}"

    def rename(self, name, new_name):
        self.request("MOVE", name, Destination=self.destination(new_name), Overwrite="T")

    def copy(self, name, new_name):
        self.request("COPY", name, Destination=self.destination(new_name), Overwrite="T")

    def list(self, name):
        tree = xml.etree.ElementTree.fromstring(self.request("PROPFIND", f"{name}/", Depth="1"))
        names = {pathlib.PurePath(urllib.parse.unquote(href.text)).name
                 for href in tree.iter("{DAV:}href") if not href.text.endswith("/")}
        return sorted(names)


# ---- SMB ----

CONFIGURATION = """[global]
    interfaces = lo
    bind interfaces only = yes
    smb ports = {port}
    server role = standalone server
    disable spoolss = yes
    load printers = no
    private dir = {work}/private
    lock directory = {work}
    state directory = {work}
    cache directory = {work}
    pid directory = {work}
    ncalrpc dir = {work}/ncalrpc
    map to guest = bad user
    guest account = {user}
    usershare path =
[files]
    path = {directory}
    guest ok = yes
    read only = no
"""


class Smb(Gateway):
    program = "smbd"
    needed = ("smbd", "smbclient")

    def command(self, program):
        self.configuration = self.work / "smb.conf"
        self.configuration.write_text(CONFIGURATION.format(
            port=self.port, work=self.work, user=getpass.getuser(), directory=self.directory),
            encoding="utf8")
        (self.work / "private").mkdir()
        return [program, "-F", "--no-process-group", "--debug-stdout", "-s",
                str(self.configuration)]

    def run(self, *commands):
        done = subprocess.run(
            [find_program("smbclient"), "-s", self.configuration, "-p", str(self.port), "-N", "-E",
             "--timeout", str(PATIENCE_SECONDS), "//127.0.0.1/files", "-c", "; ".join(commands)],
            text=True, capture_output=True, check=False, cwd=self.work)
        if done.returncode != 0 or "NT_STATUS_" in done.stderr + done.stdout:
            raise OSError(f"{commands}: {done.stderr} {done.stdout[-500:]}")
        return done.stdout + done.stderr

    @staticmethod
    def quote(name):
        return '"' + name.replace("/", "\\") + '"'

    def put(self, name, data):
        (self.work / "sent").write_bytes(data)
        parents = [parent for parent in list(pathlib.PurePath(name).parents)[-2::-1]
                   if not (self.directory / parent).is_dir()]
        self.run(*[f"mkdir {self.quote(str(parent))}" for parent in parents],
                 f"put sent {self.quote(name)}")

    def get(self, name):
        self.run(f"get {self.quote(name)} got")
        return (self.work / "got").read_bytes()

    def get_range(self, name, start, length):
        """smbclient goes on from where a local file ends; it has no other range."""
        (self.work / "got").write_bytes(bytes(start))
        self.run(f"reget {self.quote(name)} got")
        return (self.work / "got").read_bytes()[start:start + length]

    def delete(self, name):
        self.run(f"del {self.quote(name)}")

    def rename(self, name, new_name):
        self.run(f"rename {self.quote(name)} {self.quote(new_name)} -f")

    def copy(self, name, new_name):
        self.run(f"scopy {self.quote(name)} {self.quote(new_name)}")

    def list(self, name):
        lines = self.run(f"cd {self.quote(name)}", "ls").splitlines()
        return sorted(line.split()[0] for line in lines
                      if line.startswith("  ") and line.split()[1:2] not in (["D"], ["DH"]))


@ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int, ctypes.c_void_p, ctypes.c_int,
                  ctypes.c_void_p, ctypes.c_int)
def no_password(*arguments):
    """libsmbclient asks for the password, the last two."""
    ctypes.memset(arguments[6], 0, arguments[7])


class SmbFiles:
    """libsmbclient: parts of files by SMB, which smbclient does not write.  One in a process."""

    library = None

    @classmethod
    def load(cls):
        if cls.library is None:
            cls.library = ctypes.CDLL("libsmbclient.so.0", use_errno=True)
            for name in ("smbc_lseek", "smbc_read", "smbc_write"):
                getattr(cls.library, name).restype = ctypes.c_ssize_t
            cls.call("init", no_password, 0)

    @classmethod
    def call(cls, name, *arguments):
        result = getattr(cls.library, "smbc_" + name)(*arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), f"smbc_{name}")
        return result

    def __init__(self, port):
        """The library tells servers apart by their users, not by ports; both names are unknown to
        Samba, so each is a guest."""
        self.load()
        self.url = f"smb://guest{port}@127.0.0.1:{port}/files/"

    def open(self, name, flags):
        return self.call("open", (self.url + name).encode(), flags, 0o644)

    def seek(self, file, offset):
        self.call("lseek", file, ctypes.c_int64(offset), os.SEEK_SET)

    def write(self, file, offset, data):
        self.seek(file, offset)
        while data:
            data = data[self.call("write", file, data, ctypes.c_size_t(len(data))):]

    def read(self, file, offset, length):
        self.seek(file, offset)
        buffer = ctypes.create_string_buffer(length)
        found = []
        while length > 0:
            count = self.call("read", file, buffer, ctypes.c_size_t(length))
            if count == 0:
                break
            found.append(buffer.raw[:count])
            length -= count
        return b"".join(found)

    def truncate(self, file, size):
        self.call("ftruncate", file, ctypes.c_int64(size))

    def close(self, file):
        self.call("close", file)


# ---- S3 ----

class S3(Gateway):
    """Names are of a bucket "bucket", a directory."""

    needed = ("boto3",)
    client = None

    def connect(self):
        # pylint: disable=import-outside-toplevel
        import boto3
        from botocore.config import Config
        self.client = boto3.client(
            "s3", endpoint_url=f"http://127.0.0.1:{self.port}", aws_access_key_id="access",
            aws_secret_access_key="secret-of-tests", region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1},
                          read_timeout=600))
        if not (self.directory / "bucket").is_dir():
            self.client.create_bucket(Bucket="bucket")

    def put(self, name, data):
        self.client.put_object(Bucket="bucket", Key=name, Body=data)

    def get(self, name):
        return self.client.get_object(Bucket="bucket", Key=name)["Body"].read()

    def get_range(self, name, start, length):
        return self.client.get_object(Bucket="bucket", Key=name,
                                      Range=f"bytes={start}-{start + length - 1}")["Body"].read()

    def delete(self, name):
        self.client.delete_object(Bucket="bucket", Key=name)

    def copy(self, name, new_name):
        self.client.copy_object(Bucket="bucket", Key=new_name,
                                CopySource={"Bucket": "bucket", "Key": name})

    def list(self, name):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="bucket",
                                                                      Prefix=name + "/")
        return sorted(item["Key"].rpartition("/")[2]
                      for page in pages for item in page.get("Contents", []))

    def put_multipart(self, name, parts):
        upload = self.client.create_multipart_upload(Bucket="bucket", Key=name)["UploadId"]
        # Not in their order, as clients send them.
        tags = {number: self.client.upload_part(Bucket="bucket", Key=name, UploadId=upload,
                                                PartNumber=number, Body=part)["ETag"]
                for number, part in reversed(list(enumerate(parts, 1)))}
        self.client.complete_multipart_upload(
            Bucket="bucket", Key=name, UploadId=upload, MultipartUpload={"Parts": [
                {"PartNumber": number, "ETag": tags[number]} for number in sorted(tags)]})

    def abort_multipart(self, name, part):
        upload = self.client.create_multipart_upload(Bucket="bucket", Key=name)["UploadId"]
        self.client.upload_part(Bucket="bucket", Key=name, UploadId=upload, PartNumber=1,
                                Body=part)
        self.client.abort_multipart_upload(Bucket="bucket", Key=name, UploadId=upload)


class RcloneS3(S3):
    program = "rclone"
    needed = ("rclone serve s3", "boto3")
    environment = {"RCLONE_CONFIG": "/dev/null"}

    def command(self, program):
        return [program, "serve", "s3", "--addr", f"127.0.0.1:{self.port}", "--auth-key",
                "access,secret-of-tests", "--dir-cache-time", self.cache, str(self.directory)]


class Versity(S3):
    program = "versitygw"
    options = "fs=docs,xattr"
    needed = ("versitygw", "boto3")
    environment = {"ROOT_ACCESS_KEY": "access", "ROOT_SECRET_KEY": "secret-of-tests"}

    def command(self, program):
        return [program, "--quiet", "--port", f"127.0.0.1:{self.port}", "posix",
                str(self.directory)]


# ---- NFS ----

GANESHA = """NFS_CORE_PARAM {{
    NFS_Port = {port};
    MNT_Port = {mount_port};
    Protocols = 3, 4;
    Enable_NLM = false;
    Enable_RQUOTA = false;
    Enable_UDP = false;
}}
NFSV4 {{ Graceless = true; RecoveryRoot = "{work}"; }}
EXPORT {{
    Export_Id = 1;
    Path = "{directory}";
    Pseudo = "/files";
    Access_Type = RW;
    Squash = None;
    SecType = sys;
    Filesystem_Id = 77.1;
    FSAL {{ Name = VFS; }}
}}
LOG {{ Facility {{ name = FILE; destination = "{work}/ganesha.log"; enable = active; }} }}
"""


class Nfs(Gateway):
    """nfs-ganesha, as root of a namespace of networks in which rpcbind runs, and libnfs."""

    program = "ganesha.nfsd"
    needed = ("ganesha.nfsd", "nfs-ls")

    def command(self, program):
        (self.work / "ganesha.conf").write_text(GANESHA.format(
            port=self.port, mount_port=free_port(), work=self.work, directory=self.directory),
            encoding="utf8")
        return [program, "-F", "-f", str(self.work / "ganesha.conf"), "-p", str(self.work / "pid"),
                "-L", str(self.work / "ganesha.log")]

    def messages(self):
        log = self.work / "ganesha.log"
        return super().messages() + (log.read_text(encoding="utf8") if log.exists() else "")

    def connect(self):
        self.library = ctypes.CDLL("libnfs.so.13")
        for name, result in (("nfs_init_context", ctypes.c_void_p),
                             ("nfs_get_error", ctypes.c_char_p), ("nfs_opendir", ctypes.c_int)):
            getattr(self.library, name).restype = result
        wait_until(self.mount, "the registration with rpcbind")

    def mount(self):
        """False: rpcbind does not know the server yet."""
        self.context = ctypes.c_void_p(self.library.nfs_init_context())
        self.library.nfs_set_version(self.context, 3)
        try:
            self.call("mount", b"127.0.0.1", os.fsencode(self.directory))
            return True
        except OSError as error:
            if "not available" not in str(error):
                raise
            self.library.nfs_destroy_context(self.context)
            return False

    def call(self, name, *arguments):
        result = getattr(self.library, "nfs_" + name)(self.context, *arguments)
        if result < 0:
            text = self.library.nfs_get_error(self.context).decode()
            raise OSError(-result, f"{name}: {text}")
        return result

    def open(self, name, flags):
        file = ctypes.c_void_p()
        self.call("open", ("/" + name).encode(), flags, ctypes.byref(file))
        return file

    def put(self, name, data):
        for parent in list(pathlib.PurePath(name).parents)[-2::-1]:
            with contextlib.suppress(FileExistsError):
                self.call("mkdir", f"/{parent}".encode())
        file = ctypes.c_void_p()
        self.call("creat", ("/" + name).encode(), 0o644, ctypes.byref(file))
        for at in range(0, len(data), 1 << 20):
            piece = data[at:at + (1 << 20)]
            done = self.call("pwrite", file, ctypes.c_uint64(at), ctypes.c_uint64(len(piece)),
                             piece)
            if done != len(piece):
                raise OSError(f"{done} bytes of {len(piece)} were written")
        self.call("fsync", file)
        self.call("close", file)

    def put_range(self, name, start, data):
        file = self.open(name, os.O_RDWR)
        self.call("pwrite", file, ctypes.c_uint64(start), ctypes.c_uint64(len(data)), data)
        self.call("fsync", file)
        self.call("close", file)

    def append(self, name, data):
        self.put_range(name, len(self.get(name)), data)

    def truncate(self, name, size):
        """The server cuts a file off that it has open, so it is as write(): until it is synced."""
        file = self.open(name, os.O_RDWR)
        self.call("ftruncate", file, ctypes.c_uint64(size))
        self.call("fsync", file)
        self.call("close", file)

    def get(self, name):
        return self.get_range(name, 0, 1 << 40)

    def get_range(self, name, start, length):
        file = self.open(name, os.O_RDONLY)
        buffer = ctypes.create_string_buffer(1 << 20)
        pieces = []
        while length > 0:
            found = self.call("pread", file, ctypes.c_uint64(start),
                              ctypes.c_uint64(min(length, len(buffer))), buffer)
            if found == 0:
                break
            pieces.append(buffer.raw[:found])
            start += found
            length -= found
        self.call("close", file)
        return b"".join(pieces)

    def delete(self, name):
        self.call("unlink", ("/" + name).encode())

    def rename(self, name, new_name):
        self.call("rename", ("/" + name).encode(), ("/" + new_name).encode())

    def list(self, name):
        done = subprocess.run(
            [find_program("nfs-ls"), f"nfs://127.0.0.1{self.directory}/{name}?version=3"],
            text=True, capture_output=True, check=True)
        return sorted(line.split()[-1] for line in done.stdout.splitlines()
                      if line.startswith("-"))


# ---- the cases ----

def is_there(name):
    """A program, a subcommand of one, or a module of Python."""
    program, *arguments = name.split()
    if program == "boto3":
        return importlib.util.find_spec(program) is not None
    if find_program(program) is None:
        return False
    return not arguments or subprocess.run([find_program(program), *arguments, "--help"],
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                           check=False).returncode == 0


def missing(gateway):
    return [name for name in gateway.needed if not is_there(name)]


class Cases:
    """What every gateway must do; a class of tests is this, and FileSystemTest."""

    gateway = None
    # Directory of the mount that is served, and of the files in it.
    prefix = ""

    def stored(self, name):
        """The SHA-256 of a file as the server has it, without the mount."""
        return self.one("SELECT encode(sha256(blobfs.read('docs', %s)), 'hex')",
                        f"/served/{self.prefix}{name}")

    def is_stored(self, name):
        return self.one("SELECT count(*) FROM docs.path WHERE path = %s",
                        f"/served/{self.prefix}{name}") == 1

    def setUp(self):
        lacking = missing(self.gateway)
        if lacking:
            self.skipTest("not on this machine: " + ", ".join(lacking))

    def serve(self, options="", **arguments):
        self.mount = self.enterContext(Mount(self.gateway.options + options))
        os.mkdir(self.mount.path("served"))
        self.server = self.enterContext(self.gateway(self.mount.path("served"), **arguments))

    def enterContext(self, context):
        """As unittest has it from Python 3.11 on."""
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def test_content(self):
        """Content is in the tables when put() returns; clients get it, and ranges of it."""
        self.serve()
        for size in (0, 1, 10_000, LARGE_BYTES + 12_345):
            data = self.bytes(size)
            self.server.put("a/b/file", data)
            self.assertEqual(self.stored("a/b/file"), digest(data))
            self.assertEqual(digest(self.server.get("a/b/file")), digest(data))
        for start, length in ((0, 100), (1 << 20, 1 << 20), (LARGE_BYTES, 12_345)):
            self.assertEqual(digest(self.server.get_range("a/b/file", start, length)),
                             digest(data[start:start + length]))

    def test_sql(self):
        """A client gets what SQL has written last."""
        self.serve()
        self.server.put("file", b"by the client")
        for size in (LARGE_BYTES, 100):
            data = self.bytes(size)
            self.put(f"/served/{self.prefix}file", data)
            wait_until(lambda: os.path.getsize(self.mount.path("served", self.prefix + "file")) ==
                       size, "the new size")
            self.assertEqual(digest(self.server.get("file")), digest(data))

    def test_names(self):
        """Names are copied, renamed over others and deleted, and others keep their content."""
        self.serve()
        first, second = self.bytes(LARGE_BYTES), self.bytes(3000)
        self.server.put("d/first", first)
        self.server.put("d/second", second)
        if hasattr(self.gateway, "copy"):
            self.server.copy("d/first", "d/copy")
            self.assertEqual(self.stored("d/copy"), digest(first))
        if hasattr(self.gateway, "rename"):
            self.server.rename("d/first", "d/second")
            self.assertFalse(self.is_stored("d/first"))
            self.assertEqual(self.stored("d/second"), digest(first))
            self.server.put("d/first", second)
        self.server.delete("d/first")
        self.assertFalse(self.is_stored("d/first"))
        self.assertTrue(self.is_stored("d/second"))
        self.assertNotIn("first", self.server.list("d"))

    def test_list(self):
        """A listing has each of 10,000 names once.  Attributes that are older than "timeout" are
        asked for one by one, which a machine with other work to do takes long for."""
        self.serve(",timeout=60", cache="5m")
        self.sql.execute("SELECT blobfs.mkdir('docs', %s)", (f"/served/{self.prefix}many",))
        self.sql.execute("SELECT count(blobfs.write('docs', %s || n, ''))"
                         " FROM generate_series(0, %s) n",
                         (f"/served/{self.prefix}many/", MANY - 1))
        wait_until(lambda: len(os.listdir(self.mount.path("served", self.prefix + "many"))) ==
                   MANY, "the names")
        self.assertEqual(self.server.list("many"), sorted(str(n) for n in range(MANY)))


class AppendCases(Cases):
    """Clients that write parts of a file.  (smbclient 4.17 does not: its "reput" writes to the
    beginning, also of a file on ext4.)"""

    def test_append(self):
        """Bytes that a client appends are in the tables when the call returns, once."""
        self.serve()
        content = self.bytes(300_000)
        self.server.put("file", content)
        for size in (1, 5_000, LARGE_BYTES):
            more = self.bytes(size)
            self.server.append("file", more)
            content += more
            self.assertEqual(self.stored("file"), digest(content))
        self.assertEqual(digest(self.server.get("file")), digest(content))


class S3Cases(Cases):
    prefix = "bucket/"

    def test_multipart(self):
        """Parts become one object, in the order of their numbers; nothing of them stays."""
        self.serve()
        parts = [self.bytes(5 << 20), self.bytes(5 << 20), self.bytes(77)]
        self.server.put("large", b"replaced")
        self.server.put_multipart("large", parts)
        self.assertEqual(self.stored("large"), digest(b"".join(parts)))
        self.assertEqual(digest(self.server.get_range("large", (5 << 20) - 10, 20)),
                         digest(b"".join(parts)[(5 << 20) - 10:(5 << 20) + 10]))
        self.server.abort_multipart("given_up", parts[0])
        self.assertFalse(self.is_stored("given_up"))
        self.assertEqual(self.one("SELECT count(*) FROM docs.path WHERE kind = 'f' AND size > 0"
                                  " AND path NOT LIKE '%%/.vgwlocks/%%'"), 1)
