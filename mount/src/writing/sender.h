/*
 * writing/sender.h
 *	  A thread that makes files of groups after their close().
 *
 * In a directory that a group has made, no name can be taken by others, and no other transaction
 * sees a file before COMMIT.  So close() of a small file that is not made yet need not wait for the
 * server: it hands the working copy over, and the thread sends it while the program goes on.  If
 * that fails, the group cannot be committed any more: group_fail().
 */
#ifndef SENDER_H
#define SENDER_H

#include <stdbool.h>
#include <stdint.h>

struct copy;
struct sender;
struct writer;

struct sender *sender_create(struct writer *writer);
void sender_start(struct sender *sender);

/* Files in the queue are not sent: their groups are rolled back. */
void sender_destroy(struct sender *sender);

/*
 * At close(), by a user of the copy: if it is that of a file that is not made yet, in a directory
 * that its group has made, hand it over, with one more user.  False: the caller sends it.
 */
bool sender_take(struct sender *sender, struct copy *copy);

#endif							/* SENDER_H */
