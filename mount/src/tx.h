/*
 * tx.h
 *	  "blobfs tx MOUNT -- COMMAND": a program whose changes of files are one transaction.
 */
#ifndef TX_H
#define TX_H

/* Returns the exit status of the program. */
int tx_run(int argc, char **argv);

#endif							/* TX_H */
