"""Tests of the scripts of test/: what a suite leaves out is named with its reason at the end of
all, and a driver that is there is never taken for a missing one.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import jobs    # noqa: E402

# Lines of suites, and the reason that the end of all must show; None: no reason.
LINES = [
    ("ok 1 # skip no lossy disk", "no lossy disk"),
    ("t/pglogical.pl .. skipped: package postgresql-NN-pglogical",
     "package postgresql-NN-pglogical"),
    ("# skipped: the lossy disk needs root", "the lossy disk needs root"),
    ("# left out: asyncpg: no module", "asyncpg: no module"),
    ("test_page (__main__.Page) ... skipped 'no chromium'", "no chromium"),
    ("test_page (__main__.Page.test_page)", None),
    ("test_a (__main__.A)\nThe first line of its comment. ... skipped \"it's old\"", "it's old"),
    ("ok 3 - a page that was skipped 'once' is read", None),
    ("# pg8000, without test_any: the driver has no arrays of bytes", None),
]
DRIVERS = HERE.parent / "drivers" / "python_drivers.py"


def check(holds, what):
    if not holds:
        print(f"not ok - {what}")
    return holds


def reasons(text):
    with tempfile.TemporaryDirectory() as directory:
        job = jobs.Job("suite", 1)
        job.log = pathlib.Path(directory) / "suite.log"
        job.log.write_text(text + "\n")
        return job.reasons_of_skips()


def try_driver(options, modules):
    """Exit status for a driver whose modules are looked for in this directory; no server is needed
    to fail."""
    environment = dict(os.environ, PYTHONPATH=modules, PGHOST="/nowhere", PGPORT="1", PGUSER="a",
                       PGDATABASE="a")
    return subprocess.run([sys.executable, *options, "-B", DRIVERS, "asyncpg"], env=environment,
                          capture_output=True, text=True, check=False)


def main():
    results = []
    for text, wanted in LINES:
        results.append(check(reasons(text) == ([wanted] if wanted else []),
                             f"the reason of {text!r}: {reasons(text)}"))
    with tempfile.TemporaryDirectory() as modules:
        missing = try_driver(["-S"], modules)
        results.append(check(missing.returncode == 3 and "asyncpg" in missing.stderr,
                             "a driver without its module is missing"))
        package = pathlib.Path(modules) / "asyncpg"
        package.mkdir()
        (package / "__init__.py").write_text("import no_such_module\n")
        broken = try_driver(["-S"], modules)
        results.append(check(broken.returncode not in (0, 3),
                             "a driver that cannot be imported has failed"))
    if all(results):
        print("ok - what is left out is named")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
