/*
 * unit_violate.c
 *	  Violations on purpose, to see that a build that looks for them notices.
 */
#include "unit.h"

#include "utils/builtins.h"

UNIT_TEST(unit_violate)
{
	const char *what = text_to_cstring(PG_GETARG_TEXT_PP(0));
	volatile int bits = 32 + (int) strlen(what);

	unit_check_count++;
	if (strcmp(what, "assertion") == 0)
		Assert(bits == 0);
	else if (strcmp(what, "undefined") == 0)
		unit_check_count += 1 << bits;
	else
		elog(ERROR, "unknown violation \"%s\"", what);
}
