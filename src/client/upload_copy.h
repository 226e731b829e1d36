/*
 * client/upload_copy.h
 *	  COPY of pieces to uploads, received by this library; see "Pieces by COPY" in the README of
 *	  this folder.
 */
#ifndef BLOB_UPLOAD_COPY_H
#define BLOB_UPLOAD_COPY_H

#include "nodes/plannodes.h"
#include "tcop/utility.h"

/*
 * Carry the statement out if it is COPY blob_upload_pieces FROM STDIN (FORMAT binary), of a client.
 * Returns false, and has done nothing, for all other statements.
 */
extern bool blob_upload_copy(const PlannedStmt *pstmt, ProcessUtilityContext context,
							 QueryCompletion *qc);

#endif							/* BLOB_UPLOAD_COPY_H */
