/*
 * unit_datum.c
 *	  Datums of type blobstate from any bytes, as no SQL can: for test/fuzz/datums.py.
 */
#include "unit.h"

#include "core/compat.h"

PG_FUNCTION_INFO_V1(unit_headed_datum);

/*
 * unit_headed_datum(bytea, short boolean): the bytes behind a header; behind a short one, at an odd
 * address, as in a tuple, if that is asked for and can be.
 */
Datum
unit_headed_datum(PG_FUNCTION_ARGS)
{
	bytea	   *bytes = PG_GETARG_BYTEA_PP(0);
	Size		length = VARSIZE_ANY_EXHDR(bytes);
	char	   *datum = palloc(length + VARHDRSZ + 1);

	if (PG_GETARG_BOOL(1) && length + VARHDRSZ_SHORT <= VARATT_SHORT_MAX)
	{
		datum++;
		SET_VARSIZE_SHORT(datum, length + VARHDRSZ_SHORT);
	}
	else
		SET_VARSIZE(datum, length + VARHDRSZ);
	memcpy(VARDATA_ANY(datum), VARDATA_ANY(bytes), length);
	PG_RETURN_POINTER(datum);
}
