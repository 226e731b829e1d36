/*
 * sql/values/language.h
 *	  Text that procedural languages make of objects that hold bytes.
 */
#ifndef BLOB_LANGUAGE_H
#define BLOB_LANGUAGE_H

/*
 * Refuse the text that an input function was called with, ERROR 22P02, if PL/Python converts an
 * object to the type and the text is the representation of an object, such as b'...'.  Looks at the
 * first character only where the text is nothing of the kind.
 */
extern void blob_language_check_input(const char *text);

#endif							/* BLOB_LANGUAGE_H */
