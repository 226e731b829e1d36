"""test_dev.py TREE: scripts of TREE/dev where something is missing on the machine.

Runs as root, in a mount namespace of its own: files of the system are hidden by mounts, and
programs in a directory that comes first in PATH take the place of those of the system.

Each test was seen to fail with the scripts of version 0.3.0.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TREE = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
PATIENCE_SECONDS = 120


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def processes_with(text):
    """Numbers of the living processes with this text in their command line."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if text.encode() in command and path.parent.name != str(os.getpid()):
            found.append(int(path.parent.name))
    return found


def dead_links(directory):
    found = []
    for path in directory.glob("**/*.md"):
        for target in re.findall(r"\]\(([^():#]+)(?:#[^()]*)?\)", path.read_text()):
            if not (path.parent / target).exists():
                found.append((path.name, target))
    return found


def source(archive, codename, priority):
    """Of "apt-cache policy": a source of packages."""
    return (f" {priority:3} http://deb.debian.org/debian {codename}/main amd64 Packages\n"
            f"     release o=Debian,a={archive},n={codename},l=Debian,c=main,b=amd64\n"
            f"     origin deb.debian.org\n")


def policy(installed, other):
    """Of "apt-cache policy libpq5": where the installed version and another one come from."""
    return ("libpq5:\n  Installed: 2-1\n  Candidate: 2-1\n  Version table:\n"
            f" *** 2-1 500\n        500 http://deb.debian.org/debian {installed} amd64 Packages\n"
            "        100 /var/lib/dpkg/status\n"
            f"     3-1 1\n          1 http://deb.debian.org/debian {other} amd64 Packages\n")


class Dev(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="dev.")
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.directory.chmod(0o755)
        self.programs = self.directory / "bin"
        self.programs.mkdir()
        self.environment = {
            "PATH": f"{self.programs}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
            "TMPDIR": str(self.directory)}

    def program(self, name, text):
        path = self.programs / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def hide(self, path, content=""):
        """The file has this content, or the directory is empty, until the test ends."""
        if os.path.isdir(path):
            command = ["mount", "-t", "tmpfs", "tmpfs", path]
        elif os.path.exists(path):
            cover = self.directory / path.strip("/").replace("/", "_")
            cover.write_text(content)
            cover.chmod(0o644)
            command = ["mount", "--bind", cover, path]
        else:
            return
        subprocess.run(command, check=True)
        self.addCleanup(subprocess.run, ["umount", path], check=True)

    def hide_server(self):
        self.hide("/usr/lib/postgresql")
        self.hide("/usr/bin/pg_config")
        self.hide("/usr/lib/postgresql-common/pg_config")

    def run_script(self, command, **options):
        return subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, **options)

    def test_stop_before_install(self):
        """dev/stop says that there is no cluster where PostgreSQL is missing."""
        self.hide_server()
        users = pathlib.Path("/etc/passwd").read_text().splitlines(keepends=True)
        self.hide("/etc/passwd", "".join(u for u in users if not u.startswith("postgres:")))
        for arguments in ([], ["--remove"]):
            result = self.run_script(["bash", TREE / "dev/stop", *arguments])
            self.assertEqual((result.returncode, result.stdout), (0, "There is no cluster\n"))

    def test_packages_without_server(self):
        """As dev/releases does before it has made a Debian, to get debootstrap."""
        self.hide_server()
        self.program("dpkg-query", "echo not-installed")
        self.program("apt-get", f"echo $* >> {self.directory}/apt")
        result = self.run_script(
            ["bash", "-c", f". {TREE}/dev/lib.sh; dev_install_packages debootstrap"])
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("--no-install-recommends debootstrap",
                      (self.directory / "apt").read_text())

    def sudo_says(self, text):
        self.program("sudo", f"echo '{text}' >&2; exit 1")
        return self.run_script(["runuser", "-u", "nobody", "--", "bash", "-c",
                                f". {TREE}/dev/lib.sh; require_root 'installing'"],
                               start_new_session=True)

    def test_sudo_without_terminal(self):
        """The complaint of sudo without a terminal is passed on."""
        if subprocess.run(["runuser", "-u", "nobody", "--", "test", "-r", TREE / "dev/lib.sh"],
                          check=False).returncode != 0:
            self.skipTest("the checkout is not readable for other users")
        for text in ("sudo: a password is required",
                     "sudo: sorry, you must have a tty to run sudo"):
            result = self.sudo_says(text)
            self.assertNotEqual(result.returncode, 0)
            self.assertNotIn("does not let", result.stdout)
            self.assertIn(text, result.stdout)
            self.assertIn("run this in a terminal, or as root", result.stdout)

    def dev_test(self, *arguments, unknown=("postgresql-none",)):
        """Packages that dev/test would install, and what it prints, up to the tests themselves.

        apt-get fails as soon as one of the packages is unknown.
        """
        installed = self.directory / "installed"
        installed.write_text("")
        optional = "chromium|default-jdk-headless|barman|pgbackrest|*pglogical|*python3-1?|ruby-*"
        self.program("dpkg-query", f'case ${{!#}} in {optional}) echo no;; *) echo installed; esac')
        self.program("javac", "exit 1")
        self.program("apt-get", f'''[[ $* == *install* ]] || exit 0
for name in {" ".join(unknown)}; do
    [[ " $* " != *" $name "* ]] || exit 100
done
echo "$@" >> {installed}''')
        self.program("apt-cache",
                     f'[[ " {" ".join(unknown)} " != *" ${{!#}} "* ]] || exit 100')
        tree = self.directory / "tree"
        tree.mkdir(exist_ok=True)
        for name, text in (("dev/test", None), ("dev/lib.sh", None),
                           ("test/run", 'echo "may skip: ${BLOBEXT_TEST_MAY_SKIP-}"')):
            (tree / name).parent.mkdir(exist_ok=True)
            (tree / name).write_text(text or (TREE / name).read_text())
        result = self.run_script(["bash", tree / "dev/test", *arguments])
        self.assertEqual(result.returncode, 0, result.stdout)
        return installed.read_text(), result.stdout

    def test_optional_packages(self):
        """Optional packages are installed only where they are asked for."""
        installed, said = self.dev_test()
        self.assertEqual(installed, "")
        self.assertRegex(said, "are left out:.* barman .*chromium")
        self.assertIn("may skip: packages", said)

        installed, said = self.dev_test("--optional")
        self.assertIn("chromium", installed)
        self.assertIn("barman", installed)
        self.assertNotIn("left out", said)

        installed, said = self.dev_test("unit")
        self.assertEqual(installed, "")
        self.assertNotIn("left out", said)

    def suffix(self, os_release, sources="", packages=""):
        """What versions end with on a system with this os-release, where "apt-cache policy" prints
        these sources, or of packages of PostgreSQL these versions."""
        (self.directory / "os-release").write_text(os_release)
        (self.directory / "sources").write_text(sources)
        (self.directory / "versions").write_text(packages)
        self.program("dpkg-query", "printf '%s\\n' 'installed postgresql-19 libpq5' "
                     "'installed apt apt' 'not-installed postgresql-18 postgresql-18'")
        self.program("apt-cache", f"""case "$*" in
            policy) cat {self.directory}/sources ;;
            'policy libpq5') cat {self.directory}/versions ;;
            *) exit 1 ;;
        esac""")
        return self.run_script(
            ["bash", "-c", f". {TREE}/dev/lib.sh; package_suffix {self.directory}/os-release"])

    def test_unknown_packages(self):
        """As in a Debian with a server to come, which few packages are built for."""
        self.environment["PG_MAJOR"] = "99"
        installed, said = self.dev_test("--optional", unknown=("postgresql-99-pglogical",))
        self.assertIn("chromium", installed)
        self.assertNotIn("pglogical", installed)
        self.assertRegex(said, r"no packages postgresql-99-pglogical here")

    def test_versions_of_packages(self):
        """No two releases share a version, and apt changes packages when Debian is upgraded.

        Seen to fail while testing, unstable and experimental, which have one os-release, shared it.
        """
        testing = "ID=debian\nVERSION_CODENAME=forky\n"
        systems = [
            ("ID=debian\nVERSION_ID=12\nVERSION_CODENAME=bookworm\n",),
            ("ID=debian\nVERSION_ID=13\nVERSION_CODENAME=trixie\n",),
            (testing, source("testing", "forky", 500) + source("unstable", "sid", 100)),
            (testing, source("unstable", "sid", 500) + source("testing", "forky", 500) +
             source("experimental", "rc-buggy", 1), policy("sid/main", "experimental/main")),
            (testing, source("unstable", "sid", 500) + source("experimental", "rc-buggy", 1),
             policy("experimental/main", "sid/main"))]
        versions = ["1-1" + self.suffix(*system).stdout.strip() for system in systems]
        for older, newer in zip(versions, versions[1:]):
            subprocess.run(["dpkg", "--compare-versions", older, "lt", newer], check=True)
        released = self.suffix("ID=debian\nVERSION_ID=14\nVERSION_CODENAME=forky\n").stdout.strip()
        self.assertEqual(versions[2], "1-1" + released)

    def test_version_of_unknown_release(self):
        """A release that cannot be told has no version, rather than that of another one."""
        for codename, sources, said in (
                ("forky", "", "apt-get update"),
                ("forky", source("testing", "forky", -1), "apt-get update"),
                ("zurg", source("testing", "zurg", 500), "the number of zurg")):
            result = self.suffix(f"ID=debian\nVERSION_CODENAME={codename}\n", sources)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(said, result.stdout)

    def test_documents_of_packages(self):
        """Links of packaged documents lead to files of the package."""
        doc = self.directory / "doc"
        doc.mkdir()
        subprocess.run(["cp", "-R", "README.md", "SECURITY.md", "docs", "examples", "monitoring",
                        doc], cwd=TREE, check=True)
        (doc / "one.md").write_text("[ways](src/io/README.md), [all](docs/reference.md#limits)\n")
        self.assertTrue(dead_links(doc))
        subprocess.run([TREE / "debian/documents", doc], check=True)
        self.assertEqual(dead_links(doc), [])
        self.assertEqual((doc / "one.md").read_text(), "ways (src/io/README.md in the source), "
                         "[all](docs/reference.md#limits)\n")

    def start_release(self):
        """dev/releases with a Debian that is made already, whose chroot is a program of ours."""
        folder = self.directory / "releases"
        for name in ("proc", "sys", "dev/shm", "etc/apt/apt.conf.d", "etc/dpkg/dpkg.cfg.d",
                     "usr/sbin", "usr/local/src"):
            (folder / "bookworm" / name).mkdir(parents=True)
        self.program("chroot", f"sleep 86399 & touch {self.directory}/runs; exec sleep 86399")
        process = subprocess.Popen(
            ["bash", TREE / "dev/releases", "--folder", folder, "15", "--", "true"],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            start_new_session=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertTrue(wait_for((self.directory / "runs").exists))
        return process

    def namespaces_of(self, process):
        """Processes of dev/releases in other namespaces than its own."""
        own = os.readlink("/proc/self/ns/mnt")
        found = processes_with(str(self.directory)) + processes_with("sleep\x0086399")
        return [pid for pid in found
                if pid != process.pid and self.namespace(pid) not in (own, "")]

    @staticmethod
    def namespace(pid):
        try:
            return os.readlink(f"/proc/{pid}/ns/mnt")
        except OSError:
            return ""

    def kill_all_of(self, process):
        for pid in self.namespaces_of(process):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def test_release_is_ended(self):
        """dev/releases that is terminated leaves no process."""
        process = self.start_release()
        self.addCleanup(self.kill_all_of, process)
        self.assertTrue(self.namespaces_of(process))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE_SECONDS), 128 + signal.SIGTERM)
        self.assertEqual(self.namespaces_of(process), [])

    def test_release_is_killed(self):
        """dev/releases that is killed leaves no process."""
        process = self.start_release()
        self.addCleanup(self.kill_all_of, process)
        self.assertTrue(self.namespaces_of(process))
        process.kill()
        self.assertTrue(wait_for(lambda: not self.namespaces_of(process)))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[2:]])
