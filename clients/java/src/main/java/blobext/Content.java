package blobext;

import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.HexFormat;

/** Size and digest of the bytes that it was given. */
final class Content {
    private final MessageDigest digest;
    private long size;

    Content() {
        try {
            digest = MessageDigest.getInstance("SHA-256");
        } catch (GeneralSecurityException error) {
            throw new AssertionError(error);    // Every Java has it.
        }
    }

    long size() {
        return size;
    }

    void update(ByteBuffer bytes) {
        size += bytes.remaining();
        digest.update(bytes);
    }

    void clear() {
        size = 0;
        digest.reset();
    }

    BlobSummary summary() {
        try {
            byte[] soFar = ((MessageDigest) digest.clone()).digest();
            return new BlobSummary(size, HexFormat.of().formatHex(soFar));
        } catch (CloneNotSupportedException error) {
            throw new AssertionError(error);
        }
    }
}
