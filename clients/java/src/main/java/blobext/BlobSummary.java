package blobext;

/** Size in bytes and SHA-256 (64 lower-case digits) of a value. */
public record BlobSummary(long size, String sha256) {
}
