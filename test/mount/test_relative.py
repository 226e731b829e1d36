"""Files that libpq reads whenever it connects, named by relative paths.

Certificates, their keys, lists of revoked ones, passwords, service files: libpq looks them up in
the working directory, at each connection.

Seen to fail as long as the program went to "/": test_parameters, test_environment, test_service and
test_background, at the first connection after the mount; test_directory_without_rights as long as
that was an error.
"""

import os
import subprocess
import tempfile

import support
from support import FileSystemTest, Mount, wait_until

# Of this process, for the server's port is that of other runs, too.
ADDRESS = f"127.{os.getpid() >> 16 & 255}.{os.getpid() >> 8 & 255}.{os.getpid() & 254 | 1}"
FILES = {"sslrootcert": "ca.crt", "sslcert": "client.crt", "sslkey": "client.key",
         "sslcrl": "revoked.crl", "passfile": "passwords"}


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def make_certificate(name, subject):
    """NAME.key and NAME.crt, signed by the authority in ca.*."""
    openssl("req", "-new", "-nodes", "-newkey", "rsa:2048", "-subj", f"/CN={subject}",
            "-keyout", f"{name}.key", "-out", f"{name}.csr")
    openssl("x509", "-req", "-days", "2", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
            "-set_serial", "7", "-out", f"{name}.crt")
    os.chmod(f"{name}.key", 0o600)


def make_revoked():
    """The list of an authority that has revoked nothing."""
    with open("ca.conf", "w", encoding="utf8") as file:
        file.write("[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\ndefault_md = sha256\n"
                   "default_crl_days = 2\n")
    with open("index.txt", "w", encoding="utf8"):
        pass
    openssl("ca", "-config", "ca.conf", "-gencrl", "-cert", "ca.crt", "-keyfile", "ca.key",
            "-out", "revoked.crl")


class RelativeTest(FileSystemTest):
    """The server asks the role "walled" for a certificate and a password, by TCP."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.before = os.getcwd()
        cls.files = tempfile.TemporaryDirectory()
        os.chdir(cls.files.name)
        openssl("req", "-new", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "2", "-subj",
                "/CN=authority", "-keyout", "ca.key", "-out", "ca.crt")
        make_certificate("server", ADDRESS)
        make_certificate("client", "walled")
        make_revoked()
        with open("passwords", "w", encoding="utf8") as file:
            file.write("*:*:*:walled:secret\n")
        os.chmod("passwords", 0o600)
        cls.rules = os.path.join(support.DATA, "pg_hba.conf")
        with open(cls.rules, encoding="utf8") as file:
            cls.old_rules = file.read()
        with open(cls.rules, "w", encoding="utf8") as file:
            file.write("hostssl all walled 127.0.0.0/8 scram-sha-256 clientcert=verify-full\n" +
                       cls.old_rules)
        cls.sql.execute("CREATE ROLE walled LOGIN PASSWORD 'secret'")
        for name, value in [("listen_addresses", ADDRESS), ("ssl", "on")] + [
                (f"ssl_{name}_file", f"{cls.files.name}/{file}") for name, file in
                [("cert", "server.crt"), ("key", "server.key"), ("ca", "ca.crt")]]:
            cls.sql.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        cls.sql.close()
        support.restart_server()
        cls.connect()

    @classmethod
    def tearDownClass(cls):
        cls.sql.execute("ALTER SYSTEM RESET ALL")
        cls.sql.execute("DROP OWNED BY walled")
        cls.sql.execute("DROP ROLE walled")
        with open(cls.rules, "w", encoding="utf8") as file:
            file.write(cls.old_rules)
        cls.sql.close()
        support.restart_server()
        os.chdir(cls.before)
        cls.files.cleanup()
        cls.connect()
        super().tearDownClass()

    def setUp(self):
        self.sql.execute("SELECT blobfs.grant('docs', 'walled', 'write')")
        self.put("/f", b"before")
        self.conninfo = (f"host={ADDRESS} port={os.environ['PGPORT']} user=walled"
                         f" dbname={self.database} sslmode=verify-ca")
        self.of_files = "".join(f" {name}={file}" for name, file in FILES.items())

    def end_connections(self):
        """Of the mount; the next request needs a new one."""
        self.assertGreater(self.one("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                                    " WHERE usename = 'walled'"), 0)
        wait_until(lambda: self.connections() == 0, "the end of connections")

    def connections(self):
        return self.one("SELECT count(*) FROM pg_stat_activity WHERE usename = 'walled'")

    def change_and_read(self, directory):
        """A file that is in no cache is read by a new connection, with TLS."""
        self.end_connections()
        content = self.bytes(300_000)
        self.put("/new", content)
        with open(os.path.join(directory, "new"), "rb") as file:
            self.assertEqual(file.read(), content)
        self.assertEqual(self.one("SELECT count(*) FROM pg_stat_activity AS a JOIN pg_stat_ssl AS s"
                                  " USING (pid) WHERE a.usename = 'walled' AND NOT s.ssl"), 0)

    def test_parameters(self):
        """Files that the connection string names are found by each connection."""
        with Mount("fs=docs,timeo=5", self.conninfo + self.of_files) as mount:
            self.change_and_read(mount.directory)

    def test_each_file_matters(self):
        """Without one of the files, but the list of revoked ones, the role is not let in."""
        for name in FILES:
            if name != "sslcrl":
                others = self.of_files.replace(FILES[name], "none")
                self.assertIn("no connection to the server",
                              support.refused("fs=docs,timeo=5", self.conninfo + others))

    def test_environment(self):
        """Files that the environment names are found by each connection."""
        names = {"PG" + name.upper(): file for name, file in FILES.items()}
        os.environ.update(names)
        try:
            with Mount("fs=docs,timeo=5", self.conninfo) as mount:
                self.change_and_read(mount.directory)
        finally:
            for name in names:
                del os.environ[name]

    def test_service(self):
        """A service file, and the files that it names, are found by each connection."""
        with open("services", "w", encoding="utf8") as file:
            file.write("[docs]\n" + "\n".join((self.conninfo + self.of_files).split()) + "\n")
        os.environ["PGSERVICEFILE"] = "services"
        try:
            with Mount("fs=docs,timeo=5", "service=docs") as mount:
                self.change_and_read(mount.directory)
        finally:
            del os.environ["PGSERVICEFILE"]

    def test_background(self):
        """The same files are found after the program went into the background."""
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run([support.PROGRAM, "-o", "fs=docs,timeo=5", self.conninfo + self.of_files,
                            directory], check=True, timeout=support.PATIENCE_SECONDS)
            try:
                self.change_and_read(directory)
            finally:
                subprocess.run(["fusermount3", "-u", directory], check=True)
                wait_until(lambda: self.connections() == 0, "the end of the program")

    def test_directory_without_rights(self):
        """A working directory that the program may not search is no obstacle."""
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)
            os.chmod(directory, 0o600)
            try:
                with Mount("fs=docs") as mount:
                    self.assertEqual(mount.read("f"), b"before")
            finally:
                os.chmod(directory, 0o700)
                os.chdir(self.files.name)


if __name__ == "__main__":
    support.main()
