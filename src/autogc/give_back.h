/*
 * autogc/give_back.h
 *	  A worker gives space of its database back to the file system.
 */
#ifndef BLOB_AUTOGC_GIVE_BACK_H
#define BLOB_AUTOGC_GIVE_BACK_H

/*
 * Outside of a transaction: begin to give surplus space back, and finish that when a checkpoint is
 * complete, for which this asks and waits for a while.  Space that is left waits for the next look.
 * Follows the configuration meanwhile.
 */
extern void blob_autogc_give_back(void);

#endif							/* BLOB_AUTOGC_GIVE_BACK_H */
