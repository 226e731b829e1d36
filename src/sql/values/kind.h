/*
 * sql/values/kind.h
 *	  Kind of a content by its first bytes.
 */
#ifndef BLOB_KIND_H
#define BLOB_KIND_H

/* As many bytes decide, or all of a shorter content.  A tar header shows itself at offset 257. */
#define BLOB_KIND_BYTES 512

/*
 * The media type of a content that begins with these bytes and has size_bytes, or NULL if they do
 * not tell.  A content without a signature is "text/plain" only if all BLOB_KIND_BYTES bytes, or
 * all bytes that there are, have been given.
 */
extern const char *blob_kind_of(const uint8 *head, size_t head_bytes, uint64 size_bytes);

#endif							/* BLOB_KIND_H */
