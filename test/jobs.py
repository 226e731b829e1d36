"""Run jobs beside each other, the longest first, and say how far they are.

jobs.py run --command COMMAND --kind KIND [option ...] JOB ...
jobs.py estimate KIND JOB ...

A job is a string of words.  COMMAND is run for each, with "{}" replaced by the job; what it prints
goes to a file.  BLOBEXT_TEST_SLOT tells it which of the places it has, 0 to --jobs minus 1: no two
jobs that run at one time have the same.  One line is printed when a job ends, and an excerpt of its
output if it failed.

test/durations has the seconds that each took: KIND, the job's first word, seconds.  --record writes
there what passed.  "estimate" prints the seconds that all will take.
"""

import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

DURATIONS = pathlib.Path(__file__).resolve().parent / "durations"
UNKNOWN_SECONDS = 20
FAILURE = re.compile(
    rb"not ok|Failed test|FAILED|^ERROR|^FATAL|^PANIC|Traceback|: error:|died|^# guard: ")
# Of TAP; of prove, if all of a test is skipped; of the scripts of this directory; of unittest.
SKIPPED = re.compile(
    r"# skip(?:ped:?)? *(.*)|^t/\S+ \.\. skipped: (.*)|^# left out: (.*)|"
    r"\.\.\. skipped (['\"])(.*)\4$", re.I | re.M)


def read_durations():
    durations = {}
    if DURATIONS.exists():
        for line in DURATIONS.read_text().split("\n"):
            words = line.split("#")[0].split()
            if len(words) == 3:
                durations[words[0], words[1]] = float(words[2])
    return durations


def write_durations(path, durations):
    comment = [line for line in path.read_text().split("\n") if line.startswith("#")] \
        if path.exists() else []
    lines = [f"{kind} {name} {seconds:.0f}" for (kind, name), seconds in sorted(durations.items())]
    path.write_text("\n".join(comment + lines) + "\n")


def expected_seconds(durations, kind, job):
    return durations.get((kind, job.split()[0]), UNKNOWN_SECONDS)


def estimate(seconds, places):
    """When the last one ends, if the next one begins whenever a place becomes free."""
    ends = [0.0] * places
    for one in sorted(seconds, reverse=True):
        ends[ends.index(min(ends))] += one
    return max(ends)


def show_minutes(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def failures_of(log):
    """The lines of the output that name failures, and its end."""
    lines = log.read_bytes().split(b"\n")
    wanted = set()
    for number, line in enumerate(lines):
        if FAILURE.search(line):
            wanted.update(range(number, min(number + 9, len(lines))))
    shown = [lines[number] for number in sorted(wanted)][-60:]
    shown += [b"... and its last lines:"] + lines[-12:]
    return "\n".join("    " + line[:300].decode(errors="replace") for line in shown)


class Job:
    def __init__(self, text, seconds):
        self.text = text
        self.name = text.split()[0]
        self.expected = seconds
        self.process = None
        self.took = None

    def start(self, command, slot, log):
        self.slot, self.log, self.started = slot, log, time.monotonic()
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                shlex.split(command.replace("{}", self.text)), stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT,
                env=dict(os.environ, BLOBEXT_TEST_SLOT=str(slot)))

    def has_ended(self):
        return self.process.poll() is not None

    def seconds(self):
        return self.took or time.monotonic() - self.started

    def reasons_of_skips(self):
        found = SKIPPED.finditer(self.log.read_text(errors="replace"))
        return list(dict.fromkeys(one[1] or one[2] or one[3] or one[5] for one in found))


class Run:
    def __init__(self, options):
        durations = read_durations()
        jobs = [Job(text, expected_seconds(durations, options.kind, text)) for text in options.job]
        self.options = options
        self.alone = set(options.alone.split())
        self.count = len(jobs)
        jobs.sort(key=lambda job: (job.name in self.alone, -job.expected))
        self.waiting, self.running, self.ended = jobs, [], []
        self.skips = []

    def remaining(self):
        """The recorded seconds, times the factor by which earlier jobs exceeded theirs."""
        done = sum(job.expected for job, _ in self.ended)
        slowness = sum(job.took for job, _ in self.ended) / done if done else 1
        rest = [max(job.expected - job.seconds(), 1) for job in self.running]
        together = rest + [job.expected for job in self.waiting if job.name not in self.alone]
        apart = sum(job.expected for job in self.waiting if job.name in self.alone)
        return slowness * (estimate(together, self.options.jobs) + apart)

    def next_one(self):
        """The next job that may begin now.  Jobs that must be alone come last, one by one."""
        if not self.waiting or len(self.running) >= self.options.jobs:
            return None
        if self.waiting[0].name in self.alone and self.running:
            return None
        if any(job.name in self.alone for job in self.running):
            return None
        return self.waiting.pop(0)

    def end(self, job):
        passed = job.process.returncode == 0
        job.took = job.seconds()
        self.running.remove(job)
        self.ended.append((job, passed))
        number = self.options.before + len(self.ended)
        total = self.options.total or self.count
        print(f"[{number:{len(str(total))}}/{total}] {'passed' if passed else 'FAILED'} "
              f"{job.text:<24} {job.seconds():4.0f} s", end="")
        print(f"   ({show_minutes(self.remaining())} left)" if self.running or self.waiting else "")
        if not passed:
            print(f"==== failures of {job.text} (exit status {job.process.returncode}), "
                  f"from {job.log}:\n{failures_of(job.log)}\n====")
        reasons = job.reasons_of_skips()
        if reasons:
            self.skips.append(f"{job.text}: {'; '.join(reasons)}")
        sys.stdout.flush()

    def run(self):
        logs = pathlib.Path(self.options.logs)
        logs.mkdir(exist_ok=True)
        while self.waiting or self.running:
            job = self.next_one()
            if job:
                slots = set(range(self.options.jobs)) - {other.slot for other in self.running}
                job.start(self.options.command, min(slots), logs / f"{job.name}.log")
                self.running.append(job)
                continue
            for one in [one for one in self.running if one.has_ended()]:
                self.end(one)
            time.sleep(0.05)

    def report(self):
        for skip in self.skips:
            print(f"# left out: {skip}")
        failed = [job.text for job, passed in self.ended if not passed]
        if failed:
            print(f"# FAILED: {' '.join(failed)}")
        if self.options.results:
            with open(self.options.results, "a") as file:
                for job, passed in self.ended:
                    file.write(f"{job.process.returncode}\t{job.seconds():.0f}\t{job.text}\n")
        if self.options.record:
            path = pathlib.Path(self.options.record)
            durations = read_durations()
            durations.update({(self.options.kind, job.name): max(job.seconds(), 1)
                              for job, passed in self.ended if passed})
            write_durations(path, durations)
        return 1 if failed or not self.ended else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["run", "estimate"])
    parser.add_argument("--jobs", type=int, default=1, help="how many run at one time")
    parser.add_argument("--kind", default="suite")
    parser.add_argument("--command")
    parser.add_argument("--logs", help="directory for what they print")
    parser.add_argument("--results", help="file to add exit status, seconds and job to")
    parser.add_argument("--record", help="file to write durations to")
    parser.add_argument("--alone", default="", help="jobs that nothing may run beside")
    parser.add_argument("--before", type=int, default=0, help="jobs before these, to be counted")
    parser.add_argument("--total", type=int, help="of how many jobs these are some")
    parser.add_argument("job", nargs="*")
    options = parser.parse_intermixed_args()

    if options.mode == "estimate":
        durations = read_durations()
        alone = options.alone.split()
        seconds = [expected_seconds(durations, options.kind, job) for job in options.job
                   if job.split()[0] not in alone]
        apart = [expected_seconds(durations, options.kind, job) for job in options.job
                 if job.split()[0] in alone]
        print(round((estimate(seconds, options.jobs) if seconds else 0) + sum(apart)))
        return 0
    run = Run(options)
    run.run()
    return run.report()


if __name__ == "__main__":
    sys.exit(main())
