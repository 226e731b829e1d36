/*
 * connections/request.c
 *	  The request that a thread serves.
 */
#include "connections/request.h"

#include <fuse_lowlevel.h>

static __thread struct fuse_req *thread_request;
static __thread pid_t thread_requester;

void
request_set(struct fuse_req *request)
{
	thread_request = request;
	thread_requester = request != NULL ? fuse_req_ctx(request)->pid : 0;
}

pid_t
request_thread(void)
{
	return thread_requester;
}

bool
request_is_interrupted(void)
{
	return thread_request != NULL && fuse_req_interrupted(thread_request);
}
