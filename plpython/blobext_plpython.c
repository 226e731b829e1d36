/*
 * plpython/blobext_plpython.c
 *	  The transform between blobstate and bytes of Python.
 *
 * The content becomes one object of bytes, and an object becomes one datum, as with bytea.  Values
 * are read and made through the C interface of blobext (api/blobext.h) alone: reading verifies the
 * descriptor, and a value that is made holds its content itself.  Of Python only its limited
 * interface of 3.2 is used, which is all that PostgreSQL 18 declares.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "plpython.h"
#include "plpy_elog.h"
#include "plpy_typeio.h"
#include "utils/memutils.h"

#include "api/blobext.h"
#include "core/compat.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(blobext_to_plpython);
PG_FUNCTION_INFO_V1(blobext_from_plpython);

/* Content is read in steps of this size; a cancel is served between two. */
#define STEP_BYTES (1024 * 1024)

/* Functions of PL/Python, found when this library is loaded. */
typedef void (*PLy_elog_impl_t) (int elevel, const char *format,...);
static PLy_elog_impl_t PLy_elog_impl_p;
typedef char *(*PLyObject_AsString_t) (PyObject *object);
static PLyObject_AsString_t PLyObject_AsString_p;

extern void _PG_init(void);

void
_PG_init(void)
{
	StaticAssertVariableIsOfType(&PLy_elog_impl, PLy_elog_impl_t);
	StaticAssertVariableIsOfType(&PLyObject_AsString, PLyObject_AsString_t);

	PLy_elog_impl_p = (PLy_elog_impl_t)
		load_external_function("$libdir/" PLPYTHON_LIBNAME, "PLy_elog_impl", true, NULL);
	PLyObject_AsString_p = (PLyObject_AsString_t)
		load_external_function("$libdir/" PLPYTHON_LIBNAME, "PLyObject_AsString", true, NULL);
}

/* PLy_elog() is a macro, which calls the first one. */
#define PLy_elog_impl (PLy_elog_impl_p)
#define PLyObject_AsString (PLyObject_AsString_p)

static void
read_content(const BlobextBlob *blob, char *target, uint64 size_bytes)
{
	uint64		read_bytes = 0;

	while (read_bytes < size_bytes)
	{
		size_t		step = blobext_read(blob, read_bytes, target + read_bytes,
										Min(size_bytes - read_bytes, STEP_BYTES));

		if (step == 0)
			elog(ERROR, "blobstate value of " UINT64_FORMAT " bytes ends after " UINT64_FORMAT,
				 size_bytes, read_bytes);
		read_bytes += step;
		CHECK_FOR_INTERRUPTS();
	}
}

/* blobext_to_plpython(internal): the whole content as bytes.  ERROR 54000 where bytea cannot be. */
Datum
blobext_to_plpython(PG_FUNCTION_ARGS)
{
	BlobextBlob *blob = blobext_open(PG_GETARG_DATUM(0));
	uint64		size_bytes = blobext_size(blob);
	PyObject   *bytes;

	if (size_bytes > MaxAllocSize - VARHDRSZ)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("value of " UINT64_FORMAT " bytes is too large for PL/Python", size_bytes),
				 errdetail("The transform for blobstate makes at most %zu bytes at once.",
						   (size_t) (MaxAllocSize - VARHDRSZ)),
				 errhint("Read the value in ranges, with blob_read() by plpy.execute().")));
	bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t) size_bytes);
	if (bytes == NULL)
		PLy_elog(ERROR, "could not make bytes of a blobstate value");
	PG_TRY();
	{
		read_content(blob, PyBytes_AsString(bytes), size_bytes);
	}
	PG_CATCH();
	{
		Py_DECREF(bytes);
		PG_RE_THROW();
	}
	PG_END_TRY();
	blobext_close(blob);
	return PointerGetDatum(bytes);
}

/* The name of an object's type, as a palloc'ed string. */
static char *
get_type_name(PyObject *object)
{
	PyObject   *type = PyObject_Type(object);
	PyObject   *name = PyObject_GetAttrString(type, "__name__");
	char	   *result = NULL;

	Py_DECREF(type);
	if (name == NULL)
		PLy_elog(ERROR, "could not get the name of a Python type");
	PG_TRY();
	{
		result = PLyObject_AsString(name);
	}
	PG_FINALLY();
	{
		Py_DECREF(name);
	}
	PG_END_TRY();
	return result;
}

/*
 * The bytes of an object: a new reference.  Text, numbers and lists are refused, although bytes()
 * makes something of the latter two: their bytes are not what their author means.
 */
static PyObject *
get_bytes(PyObject *object)
{
	PyObject   *bytes = NULL;
	PyObject   *view;

	if (PyBytes_Check(object))
	{
		Py_INCREF(object);
		return object;
	}
	view = PyMemoryView_FromObject(object);
	if (view != NULL)
	{
		bytes = PyBytes_FromObject(view);
		Py_DECREF(view);
	}
	else if (PyErr_ExceptionMatches(PyExc_TypeError))
	{
		PyErr_Clear();
		if (!PyObject_HasAttrString(object, "__bytes__"))
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("cannot convert Python type \"%s\" to type blobstate",
							get_type_name(object)),
					 errhint("Use bytes, bytearray, memoryview or another object that has bytes; "
							 "text becomes bytes by str.encode().")));
		bytes = PyObject_Bytes(object);
	}
	if (bytes == NULL)
		PLy_elog(ERROR, "could not get the bytes of a Python object");
	return bytes;
}

/* blobext_from_plpython(internal): a value with the bytes of an object. */
Datum
blobext_from_plpython(PG_FUNCTION_ARGS)
{
	PyObject   *volatile bytes = get_bytes((PyObject *) PG_GETARG_POINTER(0));
	volatile Datum result = (Datum) 0;

	PG_TRY();
	{
		result = blobext_make(PyBytes_AsString(bytes), (size_t) PyBytes_Size(bytes));
	}
	PG_FINALLY();
	{
		Py_DECREF(bytes);
	}
	PG_END_TRY();
	PG_RETURN_DATUM(result);
}
