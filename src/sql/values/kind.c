/*
 * sql/values/kind.c
 *	  Kind of a content by its first bytes, see sql/values/kind.h.
 *
 * A guess: a signature says what a content claims to be.  Signatures of fewer than three bytes are
 * left out, or come with a second one, for text may begin with them.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "sql/values/kind.h"

typedef struct Signature
{
	const char *kind;
	const char *bytes;
	uint8		length;
	uint16		offset;
	const char *more;			/* a second one, or NULL */
	uint8		more_length;
	uint16		more_offset;
} Signature;

#define BYTES(literal) (literal), sizeof(literal) - 1

/* The first one that matches counts: those with a second signature come before those without. */
static const Signature signatures[] = {
	{"image/png", BYTES("\x89PNG\r\n\x1a\n")},
	{"image/jpeg", BYTES("\xff\xd8\xff")},
	{"image/gif", BYTES("GIF87a")},
	{"image/gif", BYTES("GIF89a")},
	{"image/webp", BYTES("RIFF"), 0, BYTES("WEBP"), 8},
	{"audio/wav", BYTES("RIFF"), 0, BYTES("WAVE"), 8},
	{"video/x-msvideo", BYTES("RIFF"), 0, BYTES("AVI "), 8},
	{"image/tiff", BYTES("II*\0")},
	{"image/tiff", BYTES("MM\0*")},
	{"image/bmp", BYTES("BM"), 0, BYTES("\0\0\0\0"), 6},
	{"image/avif", BYTES("ftypavif"), 4},
	{"image/heic", BYTES("ftyphei"), 4},
	{"image/heic", BYTES("ftypmif1"), 4},
	{"audio/mp4", BYTES("ftypM4A"), 4},
	{"video/quicktime", BYTES("ftypqt  "), 4},
	{"video/mp4", BYTES("ftyp"), 4},
	{"video/webm", BYTES("\x1a\x45\xdf\xa3"), 0, BYTES("webm"), 24},
	{"video/webm", BYTES("\x1a\x45\xdf\xa3"), 0, BYTES("webm"), 31},
	{"video/x-matroska", BYTES("\x1a\x45\xdf\xa3")},
	{"audio/mpeg", BYTES("ID3")},
	{"audio/ogg", BYTES("OggS")},
	{"audio/flac", BYTES("fLaC")},
	{"application/pdf", BYTES("%PDF-")},
	{"application/postscript", BYTES("%!PS")},
	{"application/rtf", BYTES("{\\rtf")},
	{"application/vnd.oasis.opendocument", BYTES("PK\3\4"), 0,
	BYTES("mimetypeapplication/vnd.oasis.opendocument"), 30},
	{"application/epub+zip", BYTES("PK\3\4"), 0, BYTES("mimetypeapplication/epub+zip"), 30},
	{"application/zip", BYTES("PK\3\4")},
	{"application/zip", BYTES("PK\5\6")},
	{"application/zip", BYTES("PK\7\x8")},
	{"application/gzip", BYTES("\x1f\x8b\x08")},
	{"application/zstd", BYTES("\x28\xb5\x2f\xfd")},
	{"application/x-xz", BYTES("\xfd""7zXZ\0")},
	{"application/x-bzip2", BYTES("BZh"), 0, BYTES("1AY&SY"), 4},
	{"application/x-bzip2", BYTES("BZh"), 0, BYTES("\x17rE8P\x90"), 4},
	{"application/x-lz4", BYTES("\x04\x22\x4d\x18")},
	{"application/x-7z-compressed", BYTES("7z\xbc\xaf\x27\x1c")},
	{"application/vnd.rar", BYTES("Rar!\x1a\x07")},
	{"application/x-tar", BYTES("ustar"), 257},
	{"application/x-archive", BYTES("!<arch>\n")},
	{"application/x-executable", BYTES("\x7f""ELF")},
	{"application/wasm", BYTES("\0asm")},
	{"application/java-vm", BYTES("\xca\xfe\xba\xbe")},
	{"application/vnd.sqlite3", BYTES("SQLite format 3\0")},
	{"application/vnd.apache.parquet", BYTES("PAR1")},
	{"application/x-ole-storage", BYTES("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")},
	{"font/woff", BYTES("wOFF")},
	{"font/woff2", BYTES("wOF2")},
	{"image/svg+xml", BYTES("<svg")},
	{"text/xml", BYTES("<?xml")},
	{"text/html", BYTES("<!DOCTYPE html")},
	{"text/html", BYTES("<!doctype html")},
	{"text/html", BYTES("<html")}
};

static bool
has_bytes(const uint8 *head, size_t head_bytes, const char *bytes, size_t length, size_t offset)
{
	return offset + length <= head_bytes && memcmp(head + offset, bytes, length) == 0;
}

/* The header of an MPEG audio frame without tags: 11 bits of sync, then no reserved value. */
static bool
is_mpeg_frame(const uint8 *head, size_t head_bytes)
{
	return head_bytes >= 4 && head[0] == 0xff && (head[1] & 0xe0) == 0xe0 &&
		(head[1] & 0x18) != 0x08 && (head[1] & 0x06) == 0x02 &&
		(head[2] & 0xf0) != 0xf0 && (head[2] & 0xf0) != 0x00 && (head[2] & 0x0c) != 0x0c;
}

/*
 * Whether these are characters of UTF-8 that text has.  Where the content goes on, the last
 * character may be cut off.
 */
static bool
is_text(const uint8 *head, size_t head_bytes, bool goes_on)
{
	size_t		at = 0;

	while (at < head_bytes)
	{
		size_t		length = pg_utf_mblen(head + at);

		if (length == 1 && (head[at] == 0x7f ||
							(head[at] < 0x20 && strchr("\t\n\r\f\x1b", head[at]) == NULL) ||
							head[at] == 0))
			return false;
		if (at + length > head_bytes)
		{
			/* All bytes that are there must be those of one character. */
			for (size_t i = at + 1; i < head_bytes; i++)
			{
				if ((head[i] & 0xc0) != 0x80)
					return false;
			}
			return goes_on;
		}
		if (!pg_utf8_islegal(head + at, (int) length))
			return false;
		at += length;
	}
	return true;
}

const char *
blob_kind_of(const uint8 *head, size_t head_bytes, uint64 size_bytes)
{
	if (size_bytes == 0)
		return "empty";
	for (size_t i = 0; i < lengthof(signatures); i++)
	{
		const Signature *signature = &signatures[i];

		if (has_bytes(head, head_bytes, signature->bytes, signature->length, signature->offset) &&
			(signature->more == NULL ||
			 has_bytes(head, head_bytes, signature->more, signature->more_length,
					   signature->more_offset)))
			return signature->kind;
	}
	if (is_mpeg_frame(head, head_bytes))
		return "audio/mpeg";
	if (head_bytes >= Min(size_bytes, BLOB_KIND_BYTES) &&
		is_text(head, head_bytes, head_bytes < size_bytes))
		return "text/plain";
	return NULL;
}
