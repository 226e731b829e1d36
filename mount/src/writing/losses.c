/*
 * writing/losses.c
 *	  See losses.h.
 */
#include "writing/losses.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

/*
 * The process of a thread; the thread itself if that cannot be found out.  Most threads are the
 * first one of their process, whose number that is: no signal is cheaper than a file of /proc.
 */
static pid_t
process_of(pid_t thread)
{
	char		path[64];
	char		line[256];
	int			process = thread;
	FILE	   *file;

	if (tgkill(thread, thread, 0) == 0 || errno == EPERM)
		return thread;
	snprintf(path, sizeof(path), "/proc/%d/status", (int) thread);
	file = fopen(path, "re");
	if (file == NULL)
		return thread;
	while (fgets(line, sizeof(line), file) != NULL)
	{
		if (sscanf(line, "Tgid: %d", &process) == 1)
			break;
	}
	fclose(file);
	return process;
}

static void
forget(struct losses *losses, int i)
{
	losses->items[i] = losses->items[--losses->count];
}

/* Processes that have ended will not ask.  Of one that goes on, another thread may. */
static void
forget_ended(struct losses *losses)
{
	for (int i = losses->count - 1; i >= 0; i--)
	{
		if (kill(losses->items[i].process, 0) != 0 && errno == ESRCH)
			forget(losses, i);
	}
}

void
losses_note(struct losses *losses, pid_t thread, uint64_t number)
{
	struct loss *loss;

	if (thread == 0)
		return;
	for (int i = 0; i < losses->count; i++)
	{
		loss = &losses->items[i];
		if (loss->thread == thread && !loss->is_lost)
		{
			loss->number = number;
			return;
		}
	}
	if (losses->count == LOSSES_MAX)
		forget_ended(losses);
	if (losses->count == LOSSES_MAX)
		return;
	loss = &losses->items[losses->count++];
	loss->thread = thread;
	loss->process = process_of(thread);
	loss->number = number;
	loss->is_lost = false;
}

void
losses_flushed(struct losses *losses, uint64_t number)
{
	for (int i = losses->count - 1; i >= 0; i--)
	{
		if (!losses->items[i].is_lost && losses->items[i].number <= number)
			forget(losses, i);
	}
}

void
losses_all(struct losses *losses)
{
	losses->is_untold = true;
	for (int i = 0; i < losses->count; i++)
		losses->items[i].is_lost = true;
}

/* Its own loss, else one of its process; -1: none. */
static int
find_lost(const struct losses *losses, pid_t thread)
{
	pid_t		process = 0;
	int			found = -1;

	for (int i = 0; i < losses->count; i++)
	{
		if (!losses->items[i].is_lost)
			continue;
		if (losses->items[i].thread == thread)
			return i;
		if (process == 0)
			process = process_of(thread);
		if (losses->items[i].process == process)
			found = i;
	}
	return found;
}

bool
losses_tell(struct losses *losses, pid_t thread)
{
	bool		is_first = losses->is_untold;
	int			found = thread != 0 ? find_lost(losses, thread) : -1;

	losses->is_untold = false;
	if (found >= 0)
		forget(losses, found);
	return is_first || found >= 0;
}
