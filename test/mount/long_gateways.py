"""File servers on a mount that need more than Debian's packages, or root.

By hand; a server that is not there is left out:

    GOBIN=/usr/local/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
    GOBIN=/usr/local/bin go install github.com/rclone/rclone@latest        # 1.65 or later
    RCLONE=/usr/local/bin/rclone test/run mount long_gateways

S3 needs python3-boto3.  NFS is tested by "bench/gateways --test", which is root.
"""

import os
import unittest

import gateways
import support
from support import digest


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


if __name__ == "__main__":
    support.main()
