/*
 * sql/values/language.c
 *	  Text that procedural languages make of objects that hold bytes, see sql/values/language.h.
 *
 * PL/Python converts an object to a type that it does not know by str() and the type's input
 * function.  The text of the object b'hello' is the eight characters b'hello', which are valid
 * content: without a check they would be stored in the place of the five bytes.  In a literal of
 * SQL the same characters are content, so the input function has to know its caller.
 *
 * Two things tell, and both are looked at only when the text has the form of a representation.
 *
 * 1. The error context callback on top is one of PL/Python's library.  It pushes one around each
 *	  call of a function; SPI, the parser and other languages push theirs above it while they
 *	  work.
 *
 * 2. On the stack, PL/Python's frame is found before one that executes a query.  The rows that a
 *	  cursor fetches are computed directly under PL/Python's callback, because SPI pushes none
 *	  there, and so are triggers that a commit fires.
 *
 * Where the stack cannot be read, the first one decides: an error is better than a wrong value.
 */
#include "postgres.h"

#include <ctype.h>
#include <dlfcn.h>
#include <unwind.h>

#include "commands/trigger.h"
#include "executor/executor.h"
#include "mb/pg_wchar.h"
#include "sql/values/language.h"

/* Without its directory: the server's packages choose that. */
#define PYTHON_LIBRARY "plpython3.so"

/* So much of the text is shown. */
#define MAX_SHOWN_BYTES 32

/* Functions below which a query runs. */
static const void *const query_functions[] = {
	standard_ExecutorRun, standard_ExecutorFinish, AfterTriggerFireDeferred
};

static bool
begins_with(const char *text, const char *beginning)
{
	return strncmp(text, beginning, strlen(beginning)) == 0;
}

static bool
ends_with(const char *text, size_t length, const char *end)
{
	size_t		end_length = strlen(end);

	return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* "<memory at 0x7f12>", "<_io.BytesIO object at 0x7f12>": the address, up to the end. */
static bool
ends_with_address(const char *text, size_t length)
{
	size_t		digits;

	if (!ends_with(text, length, ">"))
		return false;
	digits = length - 1;
	while (digits > 0 && isxdigit((unsigned char) text[digits - 1]))
		digits--;
	return digits < length - 1 && digits >= strlen(" at 0x") &&
		begins_with(text + digits - strlen(" at 0x"), " at 0x");
}

/* Does str() make such text of an object that holds bytes? */
static bool
is_representation(const char *text)
{
	size_t		length;

	if (text[0] != 'b' && text[0] != 'a' && text[0] != '<')
		return false;
	length = strlen(text);
	if (begins_with(text, "b'"))
		return length > 2 && ends_with(text, length, "'");
	if (begins_with(text, "b\""))
		return length > 2 && ends_with(text, length, "\"");
	if (begins_with(text, "bytearray(b"))
		return ends_with(text, length, ")");
	if (begins_with(text, "array('"))
		return ends_with(text, length, ")");
	if (begins_with(text, "<mmap.mmap "))
		return ends_with(text, length, ">");
	return text[0] == '<' && ends_with_address(text, length);
}

/* Where the library with this code is loaded; NULL if it is not that of PL/Python. */
static const void *
python_library(const void *code)
{
	Dl_info		info;
	const char *name;

	if (dladdr(code, &info) == 0 || info.dli_fname == NULL)
		return NULL;
	name = strrchr(info.dli_fname, '/');
	name = name == NULL ? info.dli_fname : name + 1;
	return strcmp(name, PYTHON_LIBRARY) == 0 ? info.dli_fbase : NULL;
}

/* Called for each frame, from the innermost on, up to that of a query or of PL/Python. */
static _Unwind_Reason_Code
look_at_frame(struct _Unwind_Context *context, void *argument)
{
	bool	   *runs_query = argument;
	const void *function = (const void *) _Unwind_GetRegionStart(context);

	for (int i = 0; i < (int) lengthof(query_functions); i++)
		*runs_query = *runs_query || function == query_functions[i];
	return *runs_query || (function != NULL && python_library(function) != NULL) ?
		_URC_END_OF_STACK : _URC_NO_REASON;
}

/* Does PL/Python itself convert an object? */
static bool
is_called_by_python(void)
{
	bool		runs_query = false;

	if (error_context_stack == NULL ||
		python_library((const void *) error_context_stack->callback) == NULL)
		return false;
	_Unwind_Backtrace(look_at_frame, &runs_query);
	return !runs_query;
}

void
blob_language_check_input(const char *text)
{
	int			length;
	int			shown;

	if (!is_representation(text) || !is_called_by_python())
		return;
	length = (int) strlen(text);
	shown = pg_mbcliplen(text, length, MAX_SHOWN_BYTES);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("invalid input for type blobstate: the text of a Python object, not its bytes"),
			 errdetail("PL/Python passed \"%.*s%s\".", shown, text, shown < length ? "..." : ""),
			 errhint("Declare the function with TRANSFORM FOR TYPE blobstate, from the extension "
					 "blobext_plpython3u, or pass type bytea to SQL and cast, or pass hex: "
					 "'\\x' followed by .hex().")));
}
