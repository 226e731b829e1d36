/*
 * client/descriptions.c
 *	  Descriptions of columns and parameters for the client, see client/descriptions.h.
 *
 * The forms of a blobstate in the protocol, text and binary, are those of a bytea with the same
 * content: only the OID in a description tells them apart.  So that OID is exchanged in the message
 * that describes, and in nothing else: within the server every expression, plan and tuple keeps its
 * type.  Why not a cast in the query: README.md of this folder, "What clients are told".
 *
 * The messages (PostgreSQL documentation, "Message Formats"): RowDescription (T),
 * ParameterDescription (t), and DataRow (D) for binary arrays, whose form names the element type.
 */
#include "postgres.h"

/* GSSAPI's headers may be missing; the declarations used here do not depend on them. */
#undef ENABLE_GSS

#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "client/descriptions.h"
#include "core/catalog.h"
#include "core/settings.h"
#include "libpq/libpq.h"
#include "port/pg_bswap.h"
#include "tcop/pquery.h"
#include "utils/lsyscache.h"

#define MESSAGE_ROW_DESCRIPTION 'T'
#define MESSAGE_PARAMETER_DESCRIPTION 't'
#define MESSAGE_DATA_ROW 'D'

/* A column of RowDescription, after its name. */
#define COLUMN_TYPE_OFFSET 6	/* after OID and number of a table's column */
#define COLUMN_TYPMOD_OFFSET 12 /* after type and its length */
#define COLUMN_BYTES 18

/* The binary form of an array: dimensions, flags, element type. */
#define ARRAY_ELEMENT_OFFSET 8

#define FORMAT_BINARY 1

static int	(*server_putmessage) (char msgtype, const char *s, size_t len);

/* As it was when catalogs could be read last; this process has one database. */
static Oid	last_blob_type = InvalidOid;

static uint16
get_uint16(const char *bytes)
{
	uint16		value;

	memcpy(&value, bytes, sizeof(value));
	return pg_ntoh16(value);
}

static uint32
get_uint32(const char *bytes)
{
	uint32		value;

	memcpy(&value, bytes, sizeof(value));
	return pg_ntoh32(value);
}

static void
put_uint32(char *bytes, uint32 value)
{
	value = pg_hton32(value);
	memcpy(bytes, &value, sizeof(value));
}

/* The type below domains.  A type that has been dropped meanwhile is no error here. */
static Oid
base_type(Oid type)
{
	return get_typtype(type) == TYPTYPE_DOMAIN ? getBaseType(type) : type;
}

/*
 * The type that a client is told of a result's column.  The server has replaced domains by their
 * base types.
 */
static Oid
told_column_type(Oid type)
{
	Oid			blob_type;

	if (type < FirstNormalObjectId)
		return type;
	blob_type = blob_catalog_type();
	if (!OidIsValid(blob_type))
		return type;
	if (type == blob_type)
		return BYTEAOID;
	return type == blob_catalog_array_type() ? BYTEAARRAYOID : type;
}

/*
 * The type that a client is told of a parameter.  The input functions of a domain over blobstate
 * take what those of bytea take.  Those of arrays do not, because the binary form has the element
 * type in it: client/array_parameters.c gives such parameters another type.
 *
 * A transaction that has failed cannot read catalogs, but a statement can be described in it, whose
 * parameters a client may remember.
 */
static Oid
told_parameter_type(Oid type)
{
	if (type < FirstNormalObjectId)
		return type;
	if (IsTransactionState())
	{
		last_blob_type = blob_catalog_type();
		type = OidIsValid(last_blob_type) && base_type(type) == last_blob_type ?
			last_blob_type : type;
	}
	return OidIsValid(last_blob_type) && type == last_blob_type ? BYTEAOID : type;
}

/*
 * Exchange the types in RowDescription.  With is_written false nothing is written.  Returns whether
 * there is anything to exchange.
 */
static bool
exchange_column_types(char *message, Size length, bool is_written)
{
	const char *end = message + length;
	int			count = length >= sizeof(uint16) ? get_uint16(message) : 0;
	char	   *column = message + sizeof(uint16);
	bool		is_found = false;

	for (int i = 0; i < count; i++)
	{
		char	   *name_end = memchr(column, '\0', end - column);
		Oid			type;
		Oid			told;

		if (name_end == NULL || end - name_end < 1 + COLUMN_BYTES)
			elog(ERROR, "invalid description of a row");
		column = name_end + 1;
		type = get_uint32(column + COLUMN_TYPE_OFFSET);
		told = told_column_type(type);
		if (told != type)
			is_found = true;
		if (told != type && is_written)
		{
			put_uint32(column + COLUMN_TYPE_OFFSET, told);
			put_uint32(column + COLUMN_TYPMOD_OFFSET, (uint32) -1);
		}
		column += COLUMN_BYTES;
	}
	return is_found;
}

/* The same for ParameterDescription. */
static bool
exchange_parameter_types(char *message, Size length, bool is_written)
{
	int			count = length >= sizeof(uint16) ? get_uint16(message) : 0;
	bool		is_found = false;

	if (length != sizeof(uint16) + count * sizeof(uint32))
		elog(ERROR, "invalid description of parameters");
	for (int i = 0; i < count; i++)
	{
		char	   *at = message + sizeof(uint16) + i * sizeof(uint32);
		Oid			type = get_uint32(at);
		Oid			told = told_parameter_type(type);

		if (told != type)
			is_found = true;
		if (told != type && is_written)
			put_uint32(at, told);
	}
	return is_found;
}

static bool
is_blob_array(Oid type)
{
	return type >= FirstNormalObjectId && OidIsValid(blob_catalog_type()) &&
		base_type(type) == blob_catalog_array_type();
}

void
blob_descriptions_fix_array(Oid type, char *array, Size length)
{
	if (blob_client_type == BLOB_CLIENT_TYPE_BYTEA && is_blob_array(type) &&
		length >= ARRAY_ELEMENT_OFFSET + sizeof(uint32))
		put_uint32(array + ARRAY_ELEMENT_OFFSET, BYTEAOID);
}

/*
 * Whether a row for the client may have a binary array whose element type is to be exchanged.  The
 * row comes from the active portal, also if it was collected before (FETCH, RETURNING).
 */
static pg_attribute_hot bool
may_have_array(void)
{
	const PortalData *portal = ActivePortal;

	if (portal == NULL || portal->tupDesc == NULL || portal->formats == NULL)
		return false;
	for (int i = 0; i < portal->tupDesc->natts; i++)
		if (portal->formats[i] == FORMAT_BINARY &&
			is_blob_array(TupleDescAttr(portal->tupDesc, i)->atttypid))
			return true;
	return false;
}

/* Exchange the element types of binary arrays in DataRow. */
static bool
exchange_element_types(char *message, Size length, bool is_written)
{
	const TupleDesc desc = ActivePortal->tupDesc;
	const char *end = message + length;
	char	   *at = message + sizeof(uint16);

	if (length < sizeof(uint16) || get_uint16(message) != desc->natts)
		return false;
	for (int i = 0; i < desc->natts && is_written; i++)
	{
		int32		bytes;

		if (end - at < (ptrdiff_t) sizeof(bytes))
			elog(ERROR, "invalid row for the client");
		bytes = (int32) get_uint32(at);
		at += sizeof(bytes);
		if (bytes > end - at)
			elog(ERROR, "invalid row for the client");
		if (bytes < 0)
			continue;
		if (ActivePortal->formats[i] == FORMAT_BINARY)
			blob_descriptions_fix_array(TupleDescAttr(desc, i)->atttypid, at, bytes);
		at += bytes;
	}
	return true;
}

/* Send a message whose types are exchanged in a copy, if there are any. */
static int
put_exchanged(char type, const char *message, Size length,
			  bool (*exchange) (char *message, Size length, bool is_written))
{
	char	   *copy;
	int			result;

	if (!exchange(unconstify(char *, message), length, false))
		return server_putmessage(type, message, length);
	copy = palloc_extended(length, MCXT_ALLOC_HUGE);
	memcpy(copy, message, length);
	exchange(copy, length, true);
	result = server_putmessage(type, copy, length);
	pfree(copy);
	return result;
}

/*
 * Catalogs are read for types of users only, and where they can be read only: core/catalog.h knows
 * no blobstate elsewhere.
 */
static pg_attribute_hot int
put_message(char type, const char *message, size_t length)
{
	if (blob_client_type == BLOB_CLIENT_TYPE_BYTEA)
	{
		if (type == MESSAGE_ROW_DESCRIPTION)
			return put_exchanged(type, message, length, exchange_column_types);
		if (type == MESSAGE_PARAMETER_DESCRIPTION)
			return put_exchanged(type, message, length, exchange_parameter_types);
		if (type == MESSAGE_DATA_ROW && may_have_array())
			return put_exchanged(type, message, length, exchange_element_types);
	}
	return server_putmessage(type, message, length);
}

void
blob_descriptions_init(void)
{
	static PQcommMethods methods;

	methods = *PqCommMethods;
	server_putmessage = methods.putmessage;
	methods.putmessage = put_message;
	PqCommMethods = &methods;
}
