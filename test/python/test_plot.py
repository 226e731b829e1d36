"""bench/plot: pictures of made-up rounds, and its complaints.  Needs no server.

Seen to fail with medians taken of seconds instead of rates, with a scale upside down, without the
check of the columns, with names that are not escaped, with sources of which the last is left out,
with ratios of mounts upside down, with rates of articles in bytes, and with cells of clients in the
order of the file.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

PLOT = os.environ["BLOBEXT_BENCH_PLOT"]
SVG = "{http://www.w3.org/2000/svg}"
MB = 1024 * 1024


def line(label, contender, number, operations, value, level="replica", way="libpq", size=MB,
         clients=1):
    return "\t".join(map(str, (level, label, way, size, clients, contender, number, operations,
                               value)))


STORES = [line("store", "bytea", number, 100, seconds)
          for number, seconds in enumerate((1, 0.9, 1.1))] + \
         [line("store", "blobstate", number, 100, seconds)
          for number, seconds in enumerate((0.4, 0.5, 5))] + \
         [line("store", "log", 0, 100, 0.25), line("store", "receive", 0, 100, 0.01)]
BYTES = [line(label, contender, 0, 10, 10 * MB * factor, level)
         for label, contender, factor, level in [
             ("device", "blobstate", 1.01, "minimal"), ("device", "bytea", 3, "minimal"),
             ("wal", "blobstate", 0.001, "minimal"), ("wal", "bytea", 1.07, "minimal"),
             ("wal", "file", 0, "minimal"), ("device", "blobstate", 2, "minimal")]]
SCAN = [line(label, contender, number, 1000, seconds, size=size)
        for label, size, contender, figures in [
            ("scan-cold", 4096, "bytea", (1, 2, 9)), ("scan-cold", 4096, "blobstate", (3, 4, 5)),
            ("scan-warm", 4096, "bytea", (1,)), ("scan-warm", 4096, "blobstate", (0.8,)),
            ("random-cold", 1600, "bytea", (1,)), ("random-cold", 1600, "file", (2,)),
            ("dump-cold", 4096, "bytea", (5,)), ("dump-cold", 4096, "blobstate", (8,))]
        for number, seconds in enumerate(figures)] + \
       [line("scan-cold-device", "blobstate", 0, 1000, 0, size=4096),
        line("scan-hits", "blobstate", 0, 0, 0, size=4096)]
REPLACE = [line("replace", "blobstate", 0, 1000, 2), line("replace", "bytea", 0, 1000, 4),
           line("allocated", "blobstate", 0, 100, 125 * MB),
           line("allocated", "bytea", 0, 100, 300 * MB)]
AGING = [line(f"aging-{label}", "blobstate", age, 1, value, way="update")
         for label, age, value in [("store", 0, 400), ("store", 8, 600), ("read", 0, 0.8),
                                   ("read", 8, 0.6), ("allocated", 0, 1), ("allocated", 8, 1.2)]]
FILL = [line("aging-fill", "file", part, 1, value) for part, value in enumerate([400] * 10 + [100])]
ARTICLES = [line("wikipedia-store", contender, 0, 1000, seconds, size=7686, clients=clients)
            for clients, contender, seconds in [
                (16, "bytea", 0.5), (16, "blobstate", 0.25), (1, "bytea", 1), (1, "blobstate", 4),
                (4, "bytea", 0.8), (4, "blobstate", 0.8)]]
METADATA = [line("metadata-digest", contender, 0, 500, seconds, size=10 * MB)
            for contender, seconds in [("bytea", 8), ("blobstate", 1)]]
MOUNT = [line("mount", contender, number, 1, seconds, state, row)
         for state, row, contender, figures in [
             ("page", "list", "file", (0.02, 0.03, 0.5)),
             ("page", "list", "blobstate", (0.03, 0.06, 1)),
             ("page", "large", "file", (0.5, 0.5, 0.5)),
             ("page", "large", "blobstate", (0.6, 0.6, 0.6)),
             ("cold", "large", "file", (1, 1, 1)),
             ("cold", "large", "blobstate", (1.25, 1.25, 1.25))]
         for number, seconds in enumerate(figures)]


class PlotTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def run_plot(self, lines, text=None):
        (self.directory / "run.tsv").write_text(text or "\n".join(lines) + "\n")
        return subprocess.run([sys.executable, PLOT, self.directory / "run.tsv",
                               self.directory / "svg"], capture_output=True, text=True, check=False)

    def pictures(self, lines, **more):
        result = self.run_plot(lines, **more)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        files = [pathlib.Path(name) for name in result.stdout.split("\n") if name]
        return {file.name: xml.etree.ElementTree.parse(file).getroot() for file in files}

    def words(self, picture):
        return [text.text for text in picture.iter(f"{SVG}text") if text.text]

    def test_files(self):
        """Rows that are there become pictures, and no others."""
        self.assertEqual(set(self.pictures(STORES)), {"store.svg"})
        self.assertEqual(set(self.pictures(STORES + BYTES + REPLACE + AGING)),
                         {"store.svg", "bytes.svg", "replace.svg", "aging.svg"})
        other = [part.replace("libpq", "server") for part in STORES]
        self.assertEqual(set(self.pictures(other)), {"store_server.svg"})

    def test_ratios(self):
        """Ratios are those of the medians of rates; the rate of bytea is written below the size."""
        picture = self.pictures(STORES)["store.svg"]
        words = self.words(picture)
        for word in ("New values, one commit each, over libpq", "1 MB", "105 MB/s", "2.00",
                     "rate / rate of bytea", "blobstate", "bytea (EXTERNAL)", "hash and WAL only"):
            self.assertIn(word, words)
        self.assertNotIn("SQLite", words)
        heights = {css.split()[-1]: float(points.split(",")[1]) for css, points in (
            (mark.get("class"), mark.get("points")) for mark in picture.iter(f"{SVG}polyline"))}
        # The faster the higher: bytea (1), blobstate (2), log (4), at equal distances.
        self.assertAlmostEqual(heights["c1"] - heights["c0"], heights["c0"] - heights["c6"], 0)
        self.assertGreater(heights["c1"], heights["c0"])

    def test_bars(self):
        """Of bytes the least of the rounds, of disk space the most."""
        words = self.words(self.pictures(BYTES)["bytes.svg"])
        self.assertIn("1.01", words)
        self.assertIn("1.07", words)
        self.assertIn("<.01", words)
        self.assertNotIn("file", words)
        words = self.words(self.pictures(REPLACE)["replace.svg"])
        for word in ("524", "262", "1.25", "3.00"):
            self.assertIn(word, words)

    def test_scan(self):
        """Scans, random reads and dumps are panels of one picture, in this order."""
        pictures = self.pictures(SCAN)
        self.assertEqual(set(pictures), {"scan.svg"})
        words = self.words(pictures["scan.svg"])
        for word in ("0.50", "1.25", "0.62", "500 per s", "1600 B"):
            self.assertIn(word, words)
        titles = [word for word in words if word.endswith("old, 1 client")]
        self.assertEqual(titles, ["Scan, cold, 1 client", "Random reads, cold, 1 client",
                                  "pg_dump, cold, 1 client"])

    def test_aging(self):
        """The picture of aging has its figures and its axes."""
        words = self.words(self.pictures(AGING)["aging.svg"])
        for word in ("1.50", "0.75", "storage age (bytes written / live bytes)", "8"):
            self.assertIn(word, words)

    def test_fill(self):
        """Stores until the disk is full are compared with the first tenth of them."""
        words = self.words(self.pictures(FILL)["fill.svg"])
        for word in ("last 1 %", "90 %", "rate / rate at 0 %", "file"):
            self.assertIn(word, words)

    def test_clients(self):
        """Rows by the number of clients have them in order, and count where no value moves."""
        pictures = self.pictures(ARTICLES + METADATA)
        self.assertEqual(set(pictures), {"wikipedia.svg", "metadata.svg"})
        words = self.words(pictures["wikipedia.svg"])
        clients = [words.index(number) for number in ("1", "4", "16")]
        self.assertEqual(clients, sorted(clients))
        for word in ("Stores, one commit each, 7686 B, wal_level = replica", "1,000 per s",
                     "clients; below it the rate of bytea"):
            self.assertIn(word, words)
        values = [text.text for text in pictures["wikipedia.svg"].iter(f"{SVG}text")
                  if text.get("class") == "value v0"]
        self.assertEqual(values, ["0.25", "1.00", "2.00"])
        words = self.words(pictures["metadata.svg"])
        for word in ("Sizes, first 32 bytes, digests, 10 MB, wal_level = replica", "62 per s",
                     "8.00"):
            self.assertIn(word, words)

    def test_mount(self):
        """Ratios of the medians of seconds; rows and states in the order of bench/mount."""
        words = self.words(self.pictures(MOUNT)["mount.svg"])
        for word in ("2.00", "30 ms", "1.20", "0.50 s", "1.25", "1.00 s"):
            self.assertIn(word, words)
        self.assertLess(words.index("cat 1 file"), words.index("ls -l"))
        self.assertLess(words.index("All in the kernel's page cache"),
                        words.index("Server restarted, caches dropped"))
        self.assertNotIn("New mount, values in the server's buffers", words)

    def test_source(self):
        """Pictures name the runs of a file, each once, and say so if it does not have them."""
        first = "# source: bench/run, commit abc; A & B <2 CPUs>; 2026-11-23 04:00 UTC"
        second = first.replace("abc", "def")
        words = self.words(self.pictures([first, *STORES, second, *BYTES, first])["store.svg"])
        end = words.index("1 to 3 rounds of each contender.")
        self.assertEqual(words[end + 1:], [first[10:], second[10:]])
        self.assertIn("The file does not say which run it is from.",
                      self.words(self.pictures(STORES)["store.svg"]))

    def test_sound(self):
        """A picture stands alone, on a background of its own, for readers of light and dark."""
        self.pictures(STORES)
        text = (self.directory / "svg" / "store.svg").read_text()
        self.assertIn("prefers-color-scheme:dark", text)
        self.assertIn('class="back"', text)
        self.assertNotIn("href", text)
        self.assertNotIn("nan", text)

    def test_complaints(self):
        """A file that cannot be drawn is refused with its line."""
        for text, complaint in [
                ("a\tb\n", "run.tsv:1: not a line of bench/run --out"),
                (f'{STORES[0]}\n{line("store", "bytea", 0, 1, 0)}\n', "run.tsv:2: not a line"),
                (STORES[0].replace("100", "many", 1) + "\n", "run.tsv:1: not a line"),
                (line("pgbench", "preloaded", 0, 1, 1) + "\n", "has no row that can be drawn")]:
            result = self.run_plot([], text=text)
            self.assertEqual(result.returncode, 1)
            self.assertIn(complaint, result.stderr)
            self.assertNotIn("Traceback", result.stderr)
        self.assertEqual(subprocess.run([sys.executable, PLOT], capture_output=True,
                                        check=False).returncode, 2)


if __name__ == "__main__":
    unittest.main()
