/*
 * hooks/hooks.h
 *	  The server's hooks, one function each.
 */
#ifndef BLOB_HOOKS_H
#define BLOB_HOOKS_H

/* Install all of them but those for shared memory; once, from _PG_init. */
extern void blob_hooks_install(void);

#endif							/* BLOB_HOOKS_H */
