/*
 * assign/label_provider.c
 *	  The provider of labels, see assign/label_provider.h.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/seclabel.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"

#include "assign/label.h"
#include "assign/label_provider.h"
#include "assign/open_keys.h"
#include "core/catalog.h"
#include "core/codec.h"

/* Whether values of a column of this type can be compressed, now or after a change of its type. */
static bool
is_label_type(Oid type)
{
	Oid			element;

	type = getBaseType(type);
	element = get_element_type(type);
	if (OidIsValid(element))
		type = getBaseType(element);
	return type == BYTEAOID || (OidIsValid(type) && type == blob_catalog_type());
}

/* Refuse a label that is not for a column of a table. */
static void
check_column(const ObjectAddress *object, int level)
{
	if (object->classId != RelationRelationId || object->objectSubId == 0 ||
		!is_label_type(get_atttype(object->objectId, (AttrNumber) object->objectSubId)))
		ereport(level,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("labels of blobext are for columns of type blobstate"),
				 errhint("A label says how the values of a column are stored.")));
	else if (get_rel_relkind(object->objectId) == RELKIND_VIEW)
		ereport(level,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("labels of blobext are for columns of tables"),
				 errdetail("\"%s\" is a view.", get_rel_name(object->objectId)),
				 errhint("Set the label of the table's column.")));
}

/*
 * Refuse a label that this version does not know, or that the column cannot have.  While pg_upgrade
 * runs this only warns, because the label may be one that the old server has accepted.
 */
static void
check_label(const ObjectAddress *object, const char *text)
{
	int			level = IsBinaryUpgrade ? WARNING : ERROR;
	BlobLabel	label;

	if (object->classId == RelationRelationId)
		CacheInvalidateRelcacheByRelid(object->objectId);
	if (text == NULL)
		return;
	check_column(object, level);
	if (!blob_label_parse(text, &label))
		ereport(level,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" does not say how values are stored", text),
				 errhint("A label is a method of compression (none, lz4, zstd), or \"digest "
						 "deferred\" or \"digest sealed\", or both, with \", \" between them.")));
	else if (!IsBinaryUpgrade)
	{
		if (label.has_method)
			blob_method_require((uint8) label.method);
		if (label.has_digest && label.defers_digest)
			blob_open_keys_require_none(object->objectId, (AttrNumber) object->objectSubId);
	}
}

/*
 * The parts of a label that a column of a type can have.  Only values of blobstate have digests
 * that can be deferred; a method may wait in a column of bytea for a change of its type.  A label
 * that this version does not know stays as it is while the type can have one.
 */
static char *
reduce_label(char *text, Oid type)
{
	BlobLabel	label;

	if (!is_label_type(type))
		return NULL;
	if (getBaseType(type) == blob_catalog_type() || !blob_label_parse(text, &label))
		return text;
	label.has_digest = false;
	return blob_label_make(&label);
}

void
blob_label_type_changed(Oid relation, AttrNumber column, Oid type)
{
	ObjectAddress object;
	char	   *text;
	char	   *reduced;

	if (!OidIsValid(type))
		return;
	ObjectAddressSubSet(object, RelationRelationId, relation, column);
	text = GetSecurityLabel(&object, BLOB_LABEL_PROVIDER);
	if (text == NULL)
		return;
	reduced = reduce_label(text, type);
	if (reduced == NULL || strcmp(reduced, text) != 0)
		SetSecurityLabel(&object, BLOB_LABEL_PROVIDER, reduced);
}

void
blob_label_register(void)
{
	register_label_provider(BLOB_LABEL_PROVIDER, check_label);
}
