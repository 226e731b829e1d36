/*
 * plpython/blobext_plpython.c
 *	  The transform between blobstate and bytes of Python.
 *
 * The content becomes one object of bytes, and an object becomes one datum, as with bytea.  Values
 * are read and made through the C interface of blobext (api/blobext.h) alone: reading verifies the
 * descriptor, and a value that is made holds its content itself.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "plpython.h"
#include "plpy_elog.h"
#include "utils/memutils.h"

#include "api/blobext.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(blobext_to_plpython);
PG_FUNCTION_INFO_V1(blobext_from_plpython);

/* Content is read in steps of this size; a cancel is served between two. */
#define STEP_BYTES (1024 * 1024)

/* PL/Python's own function for errors of Python, found when this library is loaded. */
typedef void (*PLy_elog_impl_t) (int elevel, const char *format,...);
static PLy_elog_impl_t PLy_elog_impl_p;

extern void _PG_init(void);

void
_PG_init(void)
{
	AssertVariableIsOfType(&PLy_elog_impl, PLy_elog_impl_t);
	PLy_elog_impl_p = (PLy_elog_impl_t)
		load_external_function("$libdir/" PLPYTHON_LIBNAME, "PLy_elog_impl", true, NULL);
}

/* What the macro PLy_elog() calls. */
#define PLy_elog_impl (PLy_elog_impl_p)

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
		read_content(blob, PyBytes_AS_STRING(bytes), size_bytes);
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

/*
 * The bytes of an object, contiguous in memory: a new reference to a memoryview.  Text, numbers and
 * lists are refused, although bytes() makes something of the latter two: their bytes are not what
 * their author means.
 */
static PyObject *
get_bytes(PyObject *object)
{
	PyObject   *bytes = NULL;
	PyObject   *view;

	if (!PyObject_CheckBuffer(object))
	{
		if (!PyObject_HasAttrString(object, "__bytes__"))
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("cannot convert Python type \"%s\" to type blobstate",
							Py_TYPE(object)->tp_name),
					 errhint("Use bytes, bytearray, memoryview or another object that has bytes; "
							 "text becomes bytes by str.encode().")));
		bytes = PyObject_Bytes(object);
		if (bytes == NULL)
			PLy_elog(ERROR, "could not get the bytes of a Python object");
		object = bytes;
	}
	view = PyMemoryView_GetContiguous(object, PyBUF_READ, 'C');
	Py_XDECREF(bytes);
	if (view == NULL)
		PLy_elog(ERROR, "could not read the bytes of a Python object");
	return view;
}

/* blobext_from_plpython(internal): a value with the bytes of an object. */
Datum
blobext_from_plpython(PG_FUNCTION_ARGS)
{
	PyObject   *volatile view = get_bytes((PyObject *) PG_GETARG_POINTER(0));
	volatile Datum result = (Datum) 0;

	PG_TRY();
	{
		const Py_buffer *buffer = PyMemoryView_GET_BUFFER(view);

		result = blobext_make(buffer->len > 0 ? buffer->buf : "", (size_t) buffer->len);
	}
	PG_FINALLY();
	{
		Py_DECREF(view);
	}
	PG_END_TRY();
	PG_RETURN_DATUM(result);
}
