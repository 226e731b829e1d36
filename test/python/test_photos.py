"""The example examples/photos: its statements and answers over HTTP, and its page in Chromium.

Connection parameters come from the environment.  BLOBEXT_TEST_SCREENSHOT names a file for a picture
of the page.  Seen to fail: with a unique index that is none (the duplicate), without the check of
the kind, with appends that are committed one by one (the broken upload), with ranges one byte too
long, with a page that ignores the width, and with one that puts names into the page as HTML.
"""

import base64
import hashlib
import http.client
import json
import math
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse
import zlib

import psycopg

EXAMPLES = os.path.join(os.path.dirname(os.environ["BLOBEXT_EXAMPLES"]))
PHOTOS = os.path.join(EXAMPLES, "photos")
sys.path.insert(0, PHOTOS)
import photos  # noqa: E402

DATABASE = "photos"
ROLE = "album"
DSN = f"dbname={DATABASE} user={ROLE}"


def png(width, height, seed=0, is_noise=False):
    """A picture of hills and a sun, or of noise, which cannot be compressed."""
    source = random.Random(seed)
    rows = bytearray()
    colors = [source.randrange(60, 200) for _ in range(3)]
    for y in range(height):
        rows.append(0)
        if is_noise:
            rows += source.randbytes(3 * width)
            continue
        row = bytearray()
        for x in range(width):
            hill = height * (0.6 + 0.12 * math.sin(seed + 9 * x / width))
            if y > hill:
                row += bytes(int(color * (1.4 - y / height)) & 255 for color in colors)
            elif math.hypot(x - width * 0.75, y - height * 0.25) < height * 0.1:
                row += b"\xff\xe0\x80"
            else:
                row += bytes((120 + 90 * y // height, 170 + 50 * y // height, 235))
        rows += row

    def part(name, data):
        return (struct.pack(">I", len(data)) + name + data +
                struct.pack(">I", zlib.crc32(name + data)))

    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0,
                                                             0)) +
            part(b"IDAT", zlib.compress(bytes(rows), 1)) + part(b"IEND", b""))


LARGE = png(1400, 1000, 1, is_noise=True)
SMALL = png(320, 200, 2)
TINY = png(8, 8, 3)


class PhotosTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with psycopg.connect(autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
            connection.execute(f"DROP ROLE IF EXISTS {ROLE}")
            connection.execute(f"CREATE ROLE {ROLE} LOGIN")
            connection.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")
        cls.admin = psycopg.connect(f"dbname={DATABASE}", autocommit=True)
        cls.addClassCleanup(cls.admin.close)
        cls.admin.execute("CREATE EXTENSION blobext")
        with psycopg.connect(DSN, autocommit=True) as owner:
            for name in ("file_kind.sql", "image_size.sql", "photos/schema.sql"):
                with open(os.path.join(EXAMPLES, name), encoding="utf-8") as script:
                    owner.execute(script.read())
        server = photos.make_server(DSN)
        server.RequestHandlerClass.log_message = lambda *arguments: None
        cls.addClassCleanup(server.server_close)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        cls.addClassCleanup(thread.join)
        cls.addClassCleanup(server.shutdown)
        cls.port = server.server_port

    def setUp(self):
        self.admin.execute("TRUNCATE photo, upload")

    def ask(self, method, path, body=None, headers=(), **more):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            connection.request(method, path, body, dict(headers), **more)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def json(self, *arguments, **more):
        status, _, body = self.ask(*arguments, **more)
        return status, json.loads(body)

    def put(self, name, content):
        status, answer = self.json("PUT", f"/photo?name={urllib.parse.quote(name)}", content)
        self.assertIn(status, (200, 201), answer)
        return answer["id"]

    def one(self, query, *parameters):
        return self.admin.execute(query, parameters, binary=True).fetchone()

    def check_nothing_stored(self):
        self.assertEqual(self.one("SELECT (SELECT count(*) FROM photo), (SELECT count(*) FROM"
                                  " upload)"), (0, 0))


class UploadTest(PhotosTest):
    def check_stored(self, photo, content):
        self.assertEqual(self.one("SELECT length(content), sha256(content), blob_storage(content)"
                                  " FROM photo WHERE id = %s", photo),
                         (len(content), hashlib.sha256(content).digest(), "extents"))
        self.assertEqual(self.admin.execute("SELECT * FROM blobext_check('photo')").fetchall(), [])
        self.assertEqual(self.ask("GET", f"/photo/{photo}")[2], content)

    def test_known_length(self):
        """A photo whose length is known is stored."""
        self.check_stored(self.put("large.png", LARGE), LARGE)

    def test_unknown_length(self):
        """A photo that comes in chunks is stored."""
        pieces = (LARGE[start:start + 70_000] for start in range(0, len(LARGE), 70_000))
        status, answer = self.json("PUT", "/photo?name=chunks.png", pieces, encode_chunked=True,
                                   headers=[("Transfer-Encoding", "chunked")])
        self.assertEqual((status, answer["duplicate"]), (201, False))
        self.check_stored(answer["id"], LARGE)
        self.assertEqual(self.one("SELECT count(*) FROM upload"), (0,))

    def test_duplicate(self):
        """A photo that is there already is not stored again."""
        first = self.put("first.png", LARGE)
        status, answer = self.json("PUT", "/photo?name=second.png", LARGE)
        self.assertEqual((status, answer), (200, {"id": first, "duplicate": True}))
        self.assertEqual(self.one("SELECT count(*), min(name) FROM photo"), (1, "first.png"))

    def test_duplicates_at_once(self):
        """Of uploads beside each other one stores the photo, and the others find it."""
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(
            self.json("PUT", "/photo?name=same.png", LARGE))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(status for status, _ in answers), [200] * 5 + [201])
        self.assertEqual(len({answer["id"] for _, answer in answers}), 1)

    def test_no_image(self):
        """Content that is no image is refused and not stored."""
        for content in (b"", b"text", bytes(3_000_000), b"\x89PNG\r\n\x1a\n"):
            self.assertEqual(self.json("PUT", "/photo?name=x", content)[0], 415)
        self.check_nothing_stored()

    def test_bad_requests(self):
        """Requests that are malformed are refused and store nothing."""
        for path in ("/photo", "/photo?name=", "/photo?name=%00", "/photo?name=" + "x" * 201):
            self.assertEqual(self.json("PUT", path, SMALL)[0], 400, path)
        self.assertEqual(self.json("PUT", "/photos?name=x", SMALL)[0], 404)
        for body in (b"no length\r\n", b"5\r\nabcdefgh\r\n0\r\n\r\n"):
            self.assertEqual(self.json("PUT", "/photo?name=x", body, headers=[
                ("Transfer-Encoding", "chunked")])[0], 400)
        with socket.create_connection(("127.0.0.1", self.port)) as raw:
            raw.sendall(b"PUT /photo?name=x HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertIn(b" 411 ", raw.makefile("rb").readline())
        self.check_nothing_stored()

    def test_too_large(self):
        """A photo over the limit is refused and not stored."""
        limit = photos.MAX_UPLOAD_BYTES
        photos.MAX_UPLOAD_BYTES = len(SMALL) - 1
        self.addCleanup(setattr, photos, "MAX_UPLOAD_BYTES", limit)
        self.assertEqual(self.json("PUT", "/photo?name=x", SMALL)[0], 413)
        self.check_nothing_stored()

    def test_broken(self):
        """An upload that ends too early leaves no row."""
        for head in (f"Content-Length: {len(LARGE)}\r\n\r\n",
                     f"Transfer-Encoding: chunked\r\n\r\n{len(LARGE):x}\r\n"):
            with socket.create_connection(("127.0.0.1", self.port)) as raw:
                raw.sendall(b"PUT /photo?name=x HTTP/1.1\r\nHost: x\r\n" + head.encode() +
                            LARGE[:-1])
                raw.shutdown(socket.SHUT_WR)
                self.assertEqual(raw.makefile("rb").read(), b"")
        self.check_nothing_stored()


class DownloadTest(PhotosTest):
    def setUp(self):
        super().setUp()
        self.path = f"/photo/{self.put('large.png', LARGE)}"

    def test_ranges(self):
        """A range of a photo is these bytes, one behind its end is refused."""
        size = len(LARGE)
        for header, first, length in [("bytes=0-99", 0, 100), ("bytes=4000-2004095", 4000, 2000096),
                                      ("bytes=-7", size - 7, 7),
                                      (f"bytes={size - 5}-", size - 5, 5)]:
            status, headers, body = self.ask("GET", self.path, headers=[("Range", header)])
            self.assertEqual((status, headers["Content-Range"], body),
                             (206, f"bytes {first}-{first + length - 1}/{size}",
                              LARGE[first:first + length]))
        status, headers, body = self.ask("GET", self.path, headers=[("Range", f"bytes={size}-")])
        self.assertEqual((status, headers["Content-Range"], body), (416, f"bytes */{size}", b""))

    def test_conditions(self):
        """Conditional requests are answered by the digest."""
        tag = f'"{hashlib.sha256(LARGE).hexdigest()}"'
        status, headers, body = self.ask("HEAD", self.path)
        self.assertEqual((status, headers["ETag"], headers["Content-Length"], body),
                         (200, tag, str(len(LARGE)), b""))
        self.assertEqual(headers["Content-Type"], "image/png")
        status, _, body = self.ask("GET", self.path, headers=[("If-None-Match", tag)])
        self.assertEqual((status, body), (304, b""))
        status, _, body = self.ask("GET", self.path, headers=[("Range", "bytes=0-9"),
                                                              ("If-Range", '"other"')])
        self.assertEqual((status, body), (200, LARGE))

    def test_not_there(self):
        """A photo that is not there is not found."""
        for path in ("/photo/999999999999999999", "/photo/x", "/photo/", "/../photos.py"):
            self.assertEqual(self.ask("GET", path)[0], 404, path)


class ListTest(PhotosTest):
    def test_list(self):
        """The list has the photos of at least the width given."""
        self.put("tiny.png", TINY)
        small = self.put("small.png", SMALL)
        self.assertEqual(self.json("GET", "/photos?min_width=9"), (200, [{
            "id": small, "name": "small.png", "kind": "png", "width": 320, "height": 200,
            "bytes": len(SMALL), "sha256": hashlib.sha256(SMALL).hexdigest()}]))
        self.assertEqual(len(self.json("GET", "/photos")[1]), 2)
        self.assertEqual(self.json("GET", "/photos?min_width=x")[0], 400)

    def test_index(self):
        """The search by width is answered by the semantic index."""
        self.admin.execute("SET enable_seqscan = off")
        self.addCleanup(self.admin.execute, "RESET enable_seqscan")
        plan = self.admin.execute("EXPLAIN (COSTS off) SELECT id FROM photo"
                                  " WHERE (image_size(content)).width >= 1000").fetchall()
        self.assertIn("photo_width", str(plan))

    def test_delete(self):
        """A deleted photo is gone, and leaves nothing."""
        photo = self.put("large.png", LARGE)
        self.assertEqual(self.ask("DELETE", f"/photo/{photo}")[0], 204)
        self.assertEqual(self.ask("GET", f"/photo/{photo}")[0], 404)
        self.assertEqual(self.ask("DELETE", f"/photo/{photo}")[0], 404)
        self.check_nothing_stored()

    def test_space(self):
        """The space is that of the photos, and of the store for pg_monitor."""
        self.put("large.png", LARGE)
        self.assertEqual(self.json("GET", "/space"),
                         (200, {"photos": 1, "bytes": len(LARGE)}))
        self.admin.execute(f"GRANT pg_monitor TO {ROLE}")
        self.addCleanup(self.admin.execute, f"REVOKE pg_monitor FROM {ROLE}")
        store = self.json("GET", "/space")[1]["store"]
        self.assertGreaterEqual(store["allocated"], len(LARGE))


# ---- the page ----

class Browser:
    """Chromium without a window, by its debugging protocol: JSON over two pipes."""

    def __init__(self, program, directory):
        command_read, self.commands = os.pipe()
        self.answers, answer_write = os.pipe()
        self.pending = b""
        self.number = 0
        self.session = None

        def connect_pipes():
            # Both away from 3 and 4 first, which they may be.
            ends = [os.dup(command_read), os.dup(answer_write)]
            while min(ends) < 5:
                ends = [os.dup(end) for end in ends]
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe",
             f"--user-data-dir={directory}", "--window-size=1000,800"],
            preexec_fn=connect_pipes, pass_fds=(3, 4), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=dict(os.environ, HOME=directory))
        os.close(command_read)
        os.close(answer_write)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next_message()
            if answer.get("id") == self.number:
                break
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def next_message(self):
        while b"\0" not in self.pending:
            data = os.read(self.answers, 1 << 16)
            if not data:
                raise AssertionError("Chromium has ended")
            self.pending += data
        message, _, self.pending = self.pending.partition(b"\0")
        return json.loads(message)

    def open(self, url):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Page.navigate", url=url)
        while self.next_message().get("method") != "Page.loadEventFired":
            pass

    def value(self, script):
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True,
                           returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError(result["exceptionDetails"])
        return result["result"].get("value")

    def choose_files(self, selector, paths):
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=paths)

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)


CHROMIUM = shutil.which("chromium")


@unittest.skipIf(CHROMIUM is None, "no chromium")
class PageTest(PhotosTest):
    def setUp(self):
        super().setUp()
        self.directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(self.directory.cleanup)
        self.browser = Browser(CHROMIUM, self.directory.name)
        self.addCleanup(self.browser.close)

    def file(self, name, content):
        path = os.path.join(self.directory.name, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def upload(self, name, content):
        """Choose a file on the page; return what the page says."""
        self.browser.choose_files("#files", [self.file(name, content)])
        # "last" is the promise of the page's last action; the event of the choice comes first.
        return self.state(f"""(async () => {{
            while (!document.querySelector("#state").textContent.startsWith({json.dumps(name)}))
                await new Promise(resolve => setTimeout(resolve, 10));
        }})()""")

    def state(self, before):
        self.browser.value(before)
        self.browser.value("last")
        return self.browser.value('document.querySelector("#state").textContent')

    def names(self):
        return self.browser.value(
            '[...document.querySelectorAll("figcaption")].map(c => c.firstChild.data)')

    def test_page(self):
        """The page uploads, shows, filters and deletes photos in a browser."""
        self.admin.execute(f"GRANT pg_monitor TO {ROLE}")
        self.addCleanup(self.admin.execute, f"REVOKE pg_monitor FROM {ROLE}")
        self.browser.open(f"http://127.0.0.1:{self.port}/")
        self.browser.value("last")
        self.assertEqual(self.names(), [])

        self.assertRegex(self.upload("hills.png", png(1200, 800, 5)), "^hills.png is stored")
        self.assertRegex(self.upload("large.png", LARGE), "^large.png is stored")
        self.assertRegex(self.upload("<i>small<i>.png", SMALL), "^<i>small<i>.png is stored")
        self.assertRegex(self.upload("again.png", LARGE), "^again.png is there already")
        self.assertEqual(self.upload("text.png", b"text"),
                         "text.png: this is no PNG and no JPEG")
        self.assertEqual(self.names(), ["<i>small<i>.png", "large.png", "hills.png"])

        # Thumbnails have the proportions of the photos, which arrive.
        self.assertEqual(self.browser.value("""(async () => {
            const images = [...document.images];
            await Promise.all(images.map(image => image.decode()));
            return images.map(i => [i.naturalWidth, i.naturalHeight, i.width, i.height]);
        })()"""), [[320, 200, 240, 150], [1400, 1000, 240, 171], [1200, 800, 240, 160]])
        self.assertRegex(self.browser.value('document.querySelector("footer").textContent'),
                         "^3 photos of .*; the store: .*allocated ")
        if os.environ.get("BLOBEXT_TEST_SCREENSHOT"):
            self.browser.screenshot(os.environ["BLOBEXT_TEST_SCREENSHOT"])

        self.state("""{ const input = document.querySelector("#width");
                        input.value = 1300; input.dispatchEvent(new Event("input")); }""")
        self.assertEqual(self.names(), ["large.png"])
        self.assertRegex(self.state('document.querySelector("button").click()'),
                         "^large.png is deleted")
        self.assertEqual(self.names(), [])
        self.assertEqual(self.one("SELECT count(*) FROM photo"), (2,))


if __name__ == "__main__":
    unittest.main()
