"""File servers on a mount that need more than Debian's packages, or root.

By hand; a server that is not there is left out:

    GOBIN=/usr/local/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
    GOBIN=/usr/local/bin go install github.com/rclone/rclone@latest        # 1.65 or later
    RCLONE=/usr/local/bin/rclone test/run mount long_gateways

S3 needs python3-boto3.  NFS, and parts of files by SMB, are tested by "bench/gateways --test",
which is root: a Samba of another user refuses to open a file for reading and writing, on ext4, too.
BLOBEXT_MOUNT_PARTS is the number of changes by SMB.
"""

import os
import tempfile
import unittest

import gateways
import support
from support import digest, file_digest

PART_STEPS = int(os.environ.get("BLOBEXT_MOUNT_PARTS", "200"))


class RcloneS3Test(gateways.S3Cases, support.FileSystemTest):
    gateway = gateways.RcloneS3


class VersityTest(gateways.S3Cases, support.FileSystemTest):
    gateway = gateways.Versity

    def test_metadata(self):
        """Metadata and tags of objects are extended attributes, which a copy has, too."""
        self.serve()
        client = self.server.client
        client.put_object(Bucket="bucket", Key="a", Body=b"content", ContentType="text/x",
                          Metadata={"colour": "red"})
        client.put_object_tagging(Bucket="bucket", Key="a",
                                  Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
        self.server.copy("a", "b")
        head = client.head_object(Bucket="bucket", Key="b")
        self.assertEqual((head["ContentType"], head["Metadata"]), ("text/x", {"colour": "red"}))
        self.assertEqual(client.get_object_tagging(Bucket="bucket", Key="b")["TagSet"],
                         [{"Key": "k", "Value": "v"}])


@unittest.skipUnless(os.getuid() == 0, "opening files by handles is for root: bench/gateways")
class NfsTest(gateways.AppendCases, support.FileSystemTest):
    gateway = gateways.Nfs

    def test_random_writes(self):
        """After each range that a client writes or cuts off the tables have the content."""
        self.serve()
        content = bytearray(self.bytes(3_000_000))
        self.server.put("file", bytes(content))
        for number in range(60):
            start = self.random.randrange(len(content))
            data = self.bytes(self.random.choice((1, 4_096, 100_000)))
            if number % 10 == 9:
                self.server.truncate("file", start)
                del content[start:]
            else:
                self.server.put_range("file", start, data)
                content[start:start + len(data)] = data
            self.assertEqual(self.stored("file"), digest(bytes(content)), number)
            if len(content) < 100_000:
                content = bytearray(self.bytes(1_000_000))
                self.server.put("file", bytes(content))
        self.assertEqual(digest(self.server.get("file")), digest(bytes(content)))


@unittest.skipUnless(os.getuid() == 0, "Samba as root: bench/gateways")
class SmbPartsTest(gateways.Cases, support.FileSystemTest):
    gateway = gateways.Smb

    def change(self, file, content):
        """One change of an open file at a random place, of both servers and of a plain array:
        inside, across the end, behind it, shorter and longer."""
        kind = self.random.randrange(10)
        start = self.random.randrange(len(content) + 1)
        if kind == 9:
            start = min(len(content) + 200_000, self.random.randrange(2 * len(content) + 2))
            for client, handle in file:
                client.truncate(handle, start)
            del content[start:]
            content.extend(bytes(start - len(content)))
            return
        if kind == 8:
            start = len(content) + self.random.randrange(300_000)
        data = self.bytes(self.random.choice((1, 511, 4_096, 70_000, 300_000)))
        for client, handle in file:
            client.write(handle, start, data)
        content.extend(bytes(max(0, start - len(content))))
        content[start:start + len(data)] = data

    def test_parts(self):
        """Parts that a client writes, and sizes that it sets, give the same bytes as on a
        directory: read by the handle after each, and in the tables after each close()."""
        self.serve()
        directory = self.enterContext(tempfile.TemporaryDirectory())
        plain = self.enterContext(self.gateway(directory))
        clients = [gateways.SmbFiles(server.port) for server in (self.server, plain)]
        content = bytearray(self.bytes(3_000_000))
        for server in (self.server, plain):
            server.put("file", bytes(content))
        step = 0
        while step < PART_STEPS:
            file = [(client, client.open("file", os.O_RDWR)) for client in clients]
            for _ in range(self.random.randrange(1, 8)):
                self.change(file, content)
                start = self.random.randrange(len(content) + 1)
                for client, handle in file:
                    self.assertEqual(digest(client.read(handle, start, 400_000)),
                                     digest(content[start:start + 400_000]), step)
                step += 1
            for client, handle in file:
                client.close(handle)
            self.assertEqual(self.stored("file"), digest(content), step)
            self.assertEqual(file_digest(os.path.join(directory, "file")), digest(content), step)


if __name__ == "__main__":
    support.main()
