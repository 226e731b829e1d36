"""A proxy before the server, which cuts connections at chosen moments of the protocol.

A connection is cut when the client runs a statement whose text contains a pattern:

before   the statement is not sent on: it is not carried out
after    the server has answered, and the answer is not passed on: it was committed
during   the statement is sent on, and both connections are closed at once: only the server knows
held     nothing is cut: the answer is passed on when release() is called

The client's other statements pass.  Each rule cuts once.

An answer with rows can be changed, by its number among those of all connections, as a server would
that is not ours (mangle):

columns  its rows have no columns
nulls    each field is NULL
lengths  each field has three bytes
long     each field has a million bytes
rows     its first row comes again and again, without an end
none     there is no row
copy     it is the beginning of a COPY
"""

import os
import socket
import struct
import tempfile
import threading

SSL_REQUEST = 80877103


class Closed(Exception):
    pass


def receive(connection, length):
    data = b""
    while len(data) < length:
        part = connection.recv(min(1 << 20, length - len(data)))
        if not part:
            raise Closed
        data += part
    return data


def receive_message(connection):
    """Type and all bytes of a message."""
    head = receive(connection, 5)
    return head[:1], head + receive(connection, struct.unpack("!I", head[1:])[0] - 4)


def message_of(kind, content):
    return kind + struct.pack("!I", len(content) + 4) + content


class Session:
    def __init__(self, proxy, client):
        self.proxy = proxy
        self.client = client
        self.server = socket.socket(socket.AF_UNIX)
        self.server.connect(proxy.server_path)
        self.statements = {}
        self.cut_answer = False
        self.holds_answer = False
        self.how = None                     # the answer of this moment is changed

    def close(self):
        for connection in (self.client, self.server):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def send_on(self, message):
        """Messages of the client; False: the connection was cut."""
        kind, content = message[:1], message[5:]
        text = b""
        if kind == b"B":
            text = self.statements.get(content.split(b"\0")[1], b"")
        elif kind == b"Q" and content.startswith(b"PREPARE "):
            name, statement = content[len(b"PREPARE "):].split(b" AS ", 1)
            self.statements[name] = statement
        elif kind == b"Q":
            text = content
        moment = self.proxy.match(text)
        if moment == "before":
            return False
        if moment == "during":
            # Execute and Sync must arrive, too.
            self.server.sendall(message)
            while kind not in (b"S", b"Q"):
                kind, message = receive_message(self.client)
                self.server.sendall(message)
            return False
        self.cut_answer |= moment == "after"
        self.holds_answer |= moment == "held"
        self.server.sendall(message)
        return True

    def run_client(self):
        try:
            start = receive(self.client, 4)
            self.server.sendall(start + receive(self.client, struct.unpack("!I", start)[0] - 4))
            going_on = True
            while going_on:
                going_on = self.send_on(receive_message(self.client)[1])
        except (Closed, OSError):
            pass
        self.close()
        self.client.close()

    def mangle(self, kind, message):
        if kind == b"T":
            self.how = self.proxy.count_answer()
            if self.how == "columns":
                return message_of(b"T", struct.pack("!H", 0))
            if self.how == "copy":
                return message_of(b"H", struct.pack("!bH", 0, 0))
        elif kind == b"Z":
            self.how = None
        elif kind == b"D" and self.how is not None:
            count, = struct.unpack("!H", message[5:7])
            while self.how == "rows":
                self.client.sendall(message * 100)
            field = {"columns": None, "nulls": struct.pack("!i", -1),
                     "lengths": struct.pack("!i", 3) + b"abc",
                     "long": struct.pack("!i", 1000000) + b"x" * 1000000}.get(self.how, b"")
            if self.how in ("none", "copy"):
                return b""
            if field is None:
                return message_of(b"D", struct.pack("!H", 0))
            return message_of(b"D", struct.pack("!H", count) + field * count)
        return message

    def run_server(self):
        try:
            while True:
                kind, message = receive_message(self.server)
                if self.cut_answer and kind == b"Z":
                    break
                if self.holds_answer:
                    self.proxy.holds.set()
                    self.proxy.released.wait()
                    self.holds_answer = False
                if not self.cut_answer:
                    self.client.sendall(self.mangle(kind, message))
        except (Closed, OSError):
            pass
        self.close()
        self.server.close()


class Proxy:
    """Listens in a directory of its own: host and port for a connection string."""

    def __init__(self):
        port = os.environ["PGPORT"]
        self.directory = tempfile.mkdtemp(prefix="proxy.")
        self.server_path = os.path.join(os.environ["PGHOST"], f".s.PGSQL.{port}")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(self.directory, f".s.PGSQL.{port}"))
        self.listener.listen()
        self.lock = threading.Lock()
        self.rules = []
        self.cuts = 0
        self.answers = 0
        self.mangled = (0, None)            # number of the answer, how
        self.holds = threading.Event()      # an answer
        self.released = threading.Event()
        threading.Thread(target=self.run, daemon=True).start()

    def conninfo(self):
        return f"host={self.directory} dbname={os.environ['PGDATABASE']} sslmode=disable" \
            " gssencmode=disable"

    def cut(self, pattern, moment):
        with self.lock:
            self.rules.append((pattern.encode(), moment))

    def count_answer(self):
        """How the answer that begins is changed; None: not at all."""
        with self.lock:
            self.answers += 1
            return self.mangled[1] if self.answers == self.mangled[0] else None

    def release(self):
        self.released.set()

    def match(self, text):
        with self.lock:
            for rule in self.rules:
                if rule[0] in text:
                    self.rules.remove(rule)
                    self.cuts += 1
                    return rule[1]
        return None

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                session = Session(self, client)
            except OSError:
                client.close()
                continue
            for target in (session.run_client, session.run_server):
                threading.Thread(target=target, daemon=True).start()

    def close(self):
        self.listener.close()
        os.unlink(os.path.join(self.directory, f".s.PGSQL.{os.environ['PGPORT']}"))
        os.rmdir(self.directory)


class CountingProxy(Proxy):
    """Notes the statements that pass."""

    def __init__(self):
        self.texts = []
        super().__init__()

    def match(self, text):
        if text:
            self.texts.append(text.decode())
        return super().match(text)

    def count(self, pattern):
        return sum(pattern in text for text in self.texts)
