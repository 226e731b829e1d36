/*
 * sql/values/error_detail.c
 *	  Values in PostgreSQL's error messages, see sql/values/error_detail.h.
 *
 * "Key (b)=(...) already exists" prints the key through its type's output function, however large
 * it is: 200 MB of message for 100 MB of key, and for a value that has no text form another error
 * in place of SQLSTATE 23505.  Failing rows are printed likewise, only to be cut after 64 bytes.
 *
 * PostgreSQL does not tell an output function the purpose of a call.  But the callers are on the
 * stack:  all of these messages are made with OidOutputFunctionCall(), called at a known distance
 * from functions that the server exports.  (It does not export those that report foreign keys on
 * INSERT, UPDATE and DELETE: there the value is printed in full.)  Other uses of
 * OidOutputFunctionCall() (JSON, PL/pgSQL, logical decoding) do not have these callers at that
 * distance: where one of them runs on behalf of such a function, the executor's frames are in
 * between.  Where the stack cannot be read, the answer is no, and the value is printed as always.
 */
#include "postgres.h"

#include <unwind.h>

#include "access/genam.h"
#include "blob/seal.h"
#include "commands/trigger.h"
#include "executor/execPartition.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "sql/values/error_detail.h"
#include "utils/builtins.h"

/* Frames up to OidOutputFunctionCall(): ours, the output function, fmgr's. */
#define MAX_FRAMES_TO_OUTPUT 6

/* Frames from there up to a function that reports. */
#define MAX_DISTANCE 2

typedef struct ReportingFunction
{
	const void *function;
	int			distance;		/* frames from OidOutputFunctionCall() up to it */
} ReportingFunction;

static const ReportingFunction reporting_functions[] = {
	{BuildIndexValueDescription, 1},
	{ExecConstraints, 2},
	{ExecWithCheckOptions, 2},
	{ExecPartitionCheckEmitError, 2},
	{ExecFindPartition, 2},
	{RI_Initial_Check, 2}
};

typedef struct StackWalk
{
	int			frame_no;
	int			output_frame_no;	/* of OidOutputFunctionCall(), or -1 */
	bool		found;
} StackWalk;

/*
 * Called for each frame, from the innermost on: first the output function's frame is looked for,
 * then a reporting function at its known distance from there.
 */
static _Unwind_Reason_Code
look_at_frame(struct _Unwind_Context *context, void *argument)
{
	StackWalk  *walk = argument;
	const void *function = (const void *) _Unwind_GetRegionStart(context);
	int			distance;

	walk->frame_no++;
	if (walk->output_frame_no < 0)
	{
		if (function == (const void *) OidOutputFunctionCall)
			walk->output_frame_no = walk->frame_no;
		else if (walk->frame_no > MAX_FRAMES_TO_OUTPUT)
			return _URC_END_OF_STACK;
		return _URC_NO_REASON;
	}

	distance = walk->frame_no - walk->output_frame_no;
	for (int i = 0; i < (int) lengthof(reporting_functions); i++)
	{
		if (function == reporting_functions[i].function &&
			distance == reporting_functions[i].distance)
			walk->found = true;
	}
	return walk->found || distance >= MAX_DISTANCE ? _URC_END_OF_STACK : _URC_NO_REASON;
}

bool
blob_error_detail_wanted(void)
{
	StackWalk	walk = {.output_frame_no = -1};

	_Unwind_Backtrace(look_at_frame, &walk);
	return walk.found;
}

static void
append_hex(StringInfo text, const void *data, size_t bytes)
{
	enlargeStringInfo(text, (int) bytes * 2);
	text->len += hex_encode(data, bytes, text->data + text->len);
	text->data[text->len] = '\0';
}

char *
blob_error_detail_text(const BlobValue *value)
{
	StringInfoData text;
	uint8		sha256[BLOB_DIGEST_BYTES];
	bool		is_known = blob_seal_known_digest(value, sha256);

	initStringInfo(&text);
	appendStringInfoString(&text, "\\x");
	append_hex(&text, blob_value_prefix(value), Min(value->size_bytes, BLOB_PREFIX_BYTES));
	appendStringInfo(&text, "... " UINT64_FORMAT " bytes, SHA-256 ", value->size_bytes);
	if (is_known)
		append_hex(&text, sha256, sizeof(sha256));
	else
		appendStringInfoString(&text, "open");
	return text.data;
}
