/*
 * extents/hasher.c
 *	  The thread that computes digests, see extents/hasher.h, and "The digest thread" in the README
 *	  of this folder.
 *
 * The thread calls nothing of the server: it takes a job from the queue, and calls OpenSSL.  It
 * blocks all signals, so that handlers run in the process' own thread.  The queue is the only data
 * that both use; its mutex is held for a few instructions.
 */
#include "postgres.h"

#include <pthread.h>
#include <signal.h>

#include "core/settings.h"
#include "extents/hasher.h"
#include "port/atomics.h"
#include "storage/ipc.h"

/* The thread needs little, but libraries may put much thread-local data on its stack. */
#define STACK_BYTES (256 * 1024)

/* How often the process looks whether the thread is ready, before it sleeps: some microseconds. */
#define SPINS 200

/* The same for the thread that was called, which waits for the first job. */
#define CALLED_SPINS 2000

typedef struct Job
{
	BlobDigest *digest;			/* NULL: cancelled */
	const void *data;
	size_t		length_bytes;
} Job;

/* Jobs are numbered from 1 on; number n lies in jobs[n % BLOB_HASHER_MAX_JOBS]. */
typedef struct Hasher
{
	pthread_mutex_t mutex;
	pthread_cond_t has_jobs;	/* for the thread */
	pthread_cond_t is_done;		/* for the process */
	Job 		jobs[BLOB_HASHER_MAX_JOBS];
	uint64		added;			/* the last job in the queue */
	uint64		hashed;			/* the last one that is hashed; read without the mutex, too */
	uint64		awaited;		/* by the process; 0: none */
	bool		is_called;		/* jobs are about to come */
	bool		is_hashing;		/* the job behind "hashed", in either thread */
	bool		is_awake;		/* the thread */
} Hasher;

static Hasher hasher = {
	.mutex = PTHREAD_MUTEX_INITIALIZER,
	.has_jobs = PTHREAD_COND_INITIALIZER,
	.is_done = PTHREAD_COND_INITIALIZER
};

static bool is_started;
static bool is_refused;			/* no thread can be had */

/* ---- both threads ---- */

static Job *
job_of(uint64 job_no)
{
	return &hasher.jobs[job_no % BLOB_HASHER_MAX_JOBS];
}

/*
 * Hash the next job, and take it out of the queue.  With the mutex held, which is released
 * meanwhile.
 */
static void
hash_next(void)
{
	Job 		job = *job_of(hasher.hashed + 1);

	if (job.digest != NULL)
	{
		int			success;

		hasher.is_hashing = true;
		pthread_mutex_unlock(&hasher.mutex);
		success = SHA256_Update(&job.digest->context, job.data, job.length_bytes);
		pthread_mutex_lock(&hasher.mutex);
		hasher.is_hashing = false;
		job.digest->has_failed |= success != 1;
	}
	__atomic_store_n(&hasher.hashed, hasher.hashed + 1, __ATOMIC_RELEASE);
	if (hasher.hashed == hasher.awaited)
		pthread_cond_signal(&hasher.is_done);
}

/* ---- the thread ---- */

/* Look for the jobs that are about to come.  With the mutex held, which is released meanwhile. */
static void
expect_jobs(void)
{
	hasher.is_called = false;
	pthread_mutex_unlock(&hasher.mutex);
	for (int i = 0; i < CALLED_SPINS; i++)
	{
		if (__atomic_load_n(&hasher.added, __ATOMIC_RELAXED) !=
			__atomic_load_n(&hasher.hashed, __ATOMIC_RELAXED))
			break;
		pg_spin_delay();
	}
	pthread_mutex_lock(&hasher.mutex);
}

/* The thread: hash jobs while the queue has any, sleep otherwise, until the process ends. */
static void *
run_thread(void *argument)
{
	pthread_mutex_lock(&hasher.mutex);
	for (;;)
	{
		if (hasher.is_called)
			expect_jobs();
		if (hasher.hashed < hasher.added && !hasher.is_hashing)
		{
			hasher.is_awake = true;
			hash_next();
			continue;
		}
		hasher.is_awake = false;
		pthread_cond_wait(&hasher.has_jobs, &hasher.mutex);
	}
	return NULL;
}

/* ---- the process: waiting ---- */

/*
 * Wait until a job is hashed, or hash it, if the thread does not.  With the mutex held, which is
 * released meanwhile.
 */
static void
wait_for_job(uint64 job_no)
{
	while (hasher.hashed < job_no)
	{
		if (hasher.is_hashing || hasher.is_awake)
		{
			hasher.awaited = job_no;
			pthread_cond_wait(&hasher.is_done, &hasher.mutex);
		}
		else
			hash_next();
	}
	hasher.awaited = 0;
}

/* Give the thread a moment to finish, which takes less time than to sleep and to be woken up. */
static void
spin(uint64 job_no)
{
	for (int i = 0; i < SPINS; i++)
	{
		if (__atomic_load_n(&hasher.hashed, __ATOMIC_ACQUIRE) >= job_no ||
			!__atomic_load_n(&hasher.is_awake, __ATOMIC_RELAXED))
			return;
		pg_spin_delay();
	}
}

static void
await_job(uint64 job_no)
{
	spin(job_no);
	pthread_mutex_lock(&hasher.mutex);
	wait_for_job(job_no);
	pthread_mutex_unlock(&hasher.mutex);
}

bool
blob_hasher_is_busy(const BlobDigest *digest)
{
	return __atomic_load_n(&hasher.hashed, __ATOMIC_ACQUIRE) < digest->last_job_no;
}

void
blob_hasher_wait(BlobDigest *digest)
{
	if (!blob_hasher_has(digest))
		return;
	await_job(digest->last_job_no);
	digest->last_job_no = 0;
	if (digest->has_failed)
		blob_digest_report_failure();
}

void
blob_hasher_wait_for_job(uint64 job_no)
{
	await_job(job_no);
}

/* Forget the jobs of a digest (NULL: all), and wait for the one that is being hashed. */
static void
forget(const BlobDigest *digest)
{
	pthread_mutex_lock(&hasher.mutex);
	for (uint64 no = hasher.hashed + 1; no <= hasher.added; no++)
	{
		if (digest == NULL || job_of(no)->digest == digest)
			job_of(no)->digest = NULL;
	}
	if (hasher.is_hashing)
		wait_for_job(hasher.hashed + 1);
	pthread_mutex_unlock(&hasher.mutex);
}

void
blob_hasher_cancel(BlobDigest *digest)
{
	if (!blob_hasher_has(digest))
		return;
	forget(digest);
	digest->last_job_no = 0;
}

/* ---- the process: handing over ---- */

void
blob_hasher_add(BlobDigest *digest, const void *data, size_t length_bytes)
{
	bool		is_awake;

	Assert(is_started);
	if (length_bytes == 0)
		return;
	pthread_mutex_lock(&hasher.mutex);
	if (hasher.added - hasher.hashed == BLOB_HASHER_MAX_JOBS)
		wait_for_job(hasher.hashed + 1);
	*job_of(hasher.added + 1) = (Job) {
		.digest = digest,
		.data = data,
		.length_bytes = length_bytes
	};
	__atomic_store_n(&hasher.added, hasher.added + 1, __ATOMIC_RELEASE);
	digest->last_job_no = hasher.added;
	is_awake = hasher.is_awake;
	pthread_mutex_unlock(&hasher.mutex);
	if (!is_awake)
		pthread_cond_signal(&hasher.has_jobs);
}

/*
 * Before the process ends, and its memory with it.  Registered later than the callback by which the
 * server ends the transaction, and so called before that.
 */
static void
at_exit(int code, Datum argument)
{
	forget(NULL);
}

/* Start the thread, with all signals blocked, or never try again. */
static void
start_thread(void)
{
	pthread_attr_t attributes;
	pthread_t	thread;
	sigset_t	all;
	sigset_t	before;

	is_refused = true;
	if (pthread_attr_init(&attributes) != 0)
		return;
	before_shmem_exit(at_exit, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	is_started = pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0 &&
		pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
		pthread_create(&thread, &attributes, run_thread, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (is_started)
		pthread_setname_np(thread, "blobext digest");
	pthread_attr_destroy(&attributes);
	is_refused = !is_started;
}

bool
blob_hasher_call(void)
{
	if (!blob_digest_thread || is_refused)
		return false;
	if (!is_started)
		start_thread();
	if (!is_started)
		return false;
	pthread_mutex_lock(&hasher.mutex);
	hasher.is_called = true;
	pthread_mutex_unlock(&hasher.mutex);
	pthread_cond_signal(&hasher.has_jobs);
	return true;
}
