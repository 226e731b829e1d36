/*
 * sql/maintenance/column_label.c
 *	  The label of a column, see sql/maintenance/column_label.h; blobext_set_digest().
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "commands/seclabel.h"
#include "core/catalog.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "sql/maintenance/column_label.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

PG_FUNCTION_INFO_V1(blobext_set_digest);

void
blob_column_label_require_relation(Oid relid)
{
	if (get_rel_name(relid) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
}

/* A domain over blobstate counts as blobstate. */
AttrNumber
blob_column_label_number(Oid relid, const char *name, bool allows_arrays)
{
	AttrNumber	number = get_attnum(relid, name);
	Oid			type;

	if (number <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist", name,
						get_rel_name(relid))));
	type = getBaseType(get_atttype(relid, number));
	if (allows_arrays && OidIsValid(get_element_type(type)))
		type = getBaseType(get_element_type(type));
	if (type != blob_catalog_type())
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("column \"%s\" of relation \"%s\" is not of type blobstate", name,
						get_rel_name(relid))));
	return number;
}

void
blob_column_label_find(FunctionCallInfo fcinfo, bool allows_arrays, BlobLabelledColumn *column)
{
	ObjectAddress object;
	char	   *former;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("table and column must not be null")));
	column->relid = PG_GETARG_OID(0);
	column->name = text_to_cstring(PG_GETARG_TEXT_PP(1));
	column->label = (BlobLabel) {0};
	blob_column_label_require_relation(column->relid);
	ObjectAddressSubSet(object, RelationRelationId, column->relid,
						blob_column_label_number(column->relid, column->name, allows_arrays));
	former = GetSecurityLabel(&object, BLOB_LABEL_PROVIDER);
	if (former != NULL && !blob_label_parse(former, &column->label))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of relation \"%s\" has an unknown label, \"%s\"",
						column->name, get_rel_name(column->relid), former),
				 errhint("SECURITY LABEL FOR blobext ... IS NULL takes it away.")));
}

void
blob_column_label_set(const BlobLabelledColumn *column)
{
	char	   *label = blob_label_make(&column->label);
	StringInfoData command;

	initStringInfo(&command);
	appendStringInfo(&command, "SECURITY LABEL FOR " BLOB_LABEL_PROVIDER " ON COLUMN %s.%s IS %s",
					 blob_catalog_relation_name(column->relid), quote_identifier(column->name),
					 label == NULL ? "NULL" : quote_literal_cstr(label));
	SPI_connect();
	if (SPI_execute(command.data, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "\"%s\" is no utility statement", command.data);
	SPI_finish();
}

/* blobext_set_digest(relation, column, digest): NULL removes the digest from the label. */
Datum
blobext_set_digest(PG_FUNCTION_ARGS)
{
	char	   *digest = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	BlobLabelledColumn column;

	blob_column_label_find(fcinfo, false, &column);
	column.label.has_digest = digest != NULL;
	if (digest != NULL && !blob_label_parse_digest(digest, &column.label.defers_digest))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" does not say when digests are computed", digest),
				 errhint("The digest of a column is \"deferred\" or \"sealed\".")));
	blob_column_label_set(&column);
	PG_RETURN_VOID();
}
