/*
 * assign/label.c
 *	  The label of a column, see assign/label.h.
 */
#include "postgres.h"

#include "assign/label.h"
#include "core/codec.h"
#include "lib/stringinfo.h"

#define DIGEST_PART "digest "

bool
blob_label_parse_digest(const char *text, bool *defers)
{
	*defers = strcmp(text, "deferred") == 0;
	return *defers || strcmp(text, "sealed") == 0;
}

/* Each part at most once. */
static bool
parse_part(const char *part, BlobLabel *label)
{
	if (strncmp(part, DIGEST_PART, strlen(DIGEST_PART)) == 0)
	{
		if (label->has_digest)
			return false;
		label->has_digest = true;
		return blob_label_parse_digest(part + strlen(DIGEST_PART), &label->defers_digest);
	}
	if (label->has_method)
		return false;
	label->has_method = true;
	return blob_method_from_name(part, &label->method);
}

/* The parts are cut off a copy, with one space behind each comma, as blob_label_make() has it. */
bool
blob_label_parse(const char *text, BlobLabel *label)
{
	char	   *copy = pstrdup(text);
	char	   *part = copy;
	bool		is_known = true;

	*label = (BlobLabel) {0};
	while (is_known && part != NULL)
	{
		char	   *comma = strstr(part, ", ");

		if (comma != NULL)
			*comma = '\0';
		is_known = parse_part(part, label);
		part = comma == NULL ? NULL : comma + 2;
	}
	pfree(copy);
	return is_known;
}

char *
blob_label_make(const BlobLabel *label)
{
	StringInfoData text;

	if (!label->has_method && !label->has_digest)
		return NULL;
	initStringInfo(&text);
	if (label->has_method)
		appendStringInfoString(&text, blob_method_name((uint8) label->method));
	if (label->has_digest)
		appendStringInfo(&text, "%s" DIGEST_PART "%s", label->has_method ? ", " : "",
						 label->defers_digest ? "deferred" : "sealed");
	return text.data;
}
