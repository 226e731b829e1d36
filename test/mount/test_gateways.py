"""File servers that Debian packages, on a mount: WebDAV by rclone, SMB by Samba.

A server that is not installed is left out.  S3, NFS, and parts of files by SMB: long_gateways.py.
"""

import gateways
import support


class WebDavTest(gateways.Cases, support.FileSystemTest):
    gateway = gateways.WebDav


class SmbTest(gateways.Cases, support.FileSystemTest):
    gateway = gateways.Smb


if __name__ == "__main__":
    support.main()
