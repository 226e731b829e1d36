/*
 * unit.h
 *	  SQL functions that test C modules: each raises an error at the first check that fails, and
 *	  returns how many it made.
 */
#ifndef BLOB_UNIT_H
#define BLOB_UNIT_H

#include "postgres.h"

#include "fmgr.h"

extern int64 unit_check_count;

/* The message: the expected result, printf style. */
#define CHECK(condition, ...) \
	do { \
		unit_check_count++; \
		if (!(condition)) \
			ereport(ERROR, \
					(errmsg_internal("%s:%d: %s", __FILE__, __LINE__, #condition), \
					 errdetail_internal(__VA_ARGS__))); \
	} while (0)

#define UNIT_TEST(name) \
	PG_FUNCTION_INFO_V1(name); \
	static void name##_body(FunctionCallInfo fcinfo); \
	Datum \
	name(PG_FUNCTION_ARGS) \
	{ \
		unit_check_count = 0; \
		name##_body(fcinfo); \
		PG_RETURN_INT64(unit_check_count); \
	} \
	static void name##_body(FunctionCallInfo fcinfo)

#endif							/* BLOB_UNIT_H */
