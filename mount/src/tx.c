/*
 * tx.c
 *	  "blobfs tx MOUNT -- COMMAND": a program whose changes of files are one transaction.
 *
 * The command runs in a mount namespace of its own, where the transaction's directory takes the
 * place of the mount.  So it sees the same paths as ever.  A user without privileges gets such a
 * namespace within a user namespace with the same ids.
 */
#include "tx.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/errors.h"

enum
{
	/* As a shell has them. */
	STATUS_CANNOT_RUN = 126,
	STATUS_NOT_FOUND = 127,
	STATUS_SIGNAL = 128
};

static const char usage[] =
	"usage: blobfs tx DIRECTORY -- COMMAND [ARGUMENT...]\n"
	"\n"
	"Runs a command that sees the mounted file system at DIRECTORY in a transaction: all that it\n"
	"changes there is committed if it ends with status 0, and nothing otherwise.\n";

/* Set by fork(), before a handler can use it. */
static pid_t command_pid;

/* Signals that end this program go to the command; the transaction is ended after it. */
static const int passed_signals[] = {SIGHUP, SIGTERM};

/* Those of the terminal reach the command without it, as with system(). */
static const int ignored_signals[] = {SIGINT, SIGQUIT};

static void
pass_signal(int signal_number)
{
	kill(command_pid, signal_number);
}

static void
set_handler(int signal_number, void (*handler) (int))
{
	struct sigaction action = {.sa_handler = handler};

	sigaction(signal_number, &action, NULL);
}

static void
write_text(const char *path, const char *text)
{
	int			file = open(path, O_WRONLY);

	if (file < 0 || write(file, text, strlen(text)) != (ssize_t) strlen(text))
		fatal("%s: %m", path);
	close(file);
}

/* A mount namespace; for an ordinary user within a user namespace with the same ids. */
static void
enter_namespace(void)
{
	uid_t		uid = geteuid();
	gid_t		gid = getegid();
	char	   *text;

	if (unshare(CLONE_NEWNS) == 0)
		return;
	if (errno != EPERM || unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		fatal("no mount namespace: %m");
	text = format_string("%u %u 1", uid, uid);
	write_text("/proc/self/uid_map", text);
	free(text);
	write_text("/proc/self/setgroups", "deny");
	text = format_string("%u %u 1", gid, gid);
	write_text("/proc/self/gid_map", text);
	free(text);
}

/* In the child: never returns. */
static void
run_command(const char *directory, const char *mountpoint, char **command)
{
	char	   *here = getcwd(NULL, 0);

	enter_namespace();
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
		mount(directory, mountpoint, NULL, MS_BIND, NULL) != 0)
		fatal("%s in place of %s: %m", directory, mountpoint);
	/* By its path, which may lead through the mount. */
	if (here != NULL && chdir(here) != 0)
		fatal("%s: %m", here);
	free(here);
	execvp(command[0], command);
	message("%s: %m", command[0]);
	_exit(errno == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN);
}

/*
 * A signal that ended this program would leave the transaction open, with its locks, for as long as
 * the file system is mounted.  So signals are blocked before it begins, and until they have their
 * handlers.  The command gets those that this program had.
 */
static sigset_t
block_signals(void)
{
	sigset_t	all;
	sigset_t	before;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	return before;
}

/* The command in a process of its own; signals are let through again. */
static pid_t
start_command(const char *directory, const char *mountpoint, char **command,
			  const sigset_t *signals)
{
	sigset_t	pending;

	command_pid = fork();
	if (command_pid == 0)
	{
		sigprocmask(SIG_SETMASK, signals, NULL);
		run_command(directory, mountpoint, command);
	}
	if (command_pid < 0)
		return -1;
	for (size_t i = 0; i < sizeof(passed_signals) / sizeof(passed_signals[0]); i++)
		set_handler(passed_signals[i], pass_signal);
	sigpending(&pending);
	for (size_t i = 0; i < sizeof(ignored_signals) / sizeof(ignored_signals[0]); i++)
	{
		/* One that came before the command was there. */
		if (sigismember(&pending, ignored_signals[i]))
			kill(command_pid, ignored_signals[i]);
		set_handler(ignored_signals[i], SIG_IGN);
	}
	sigprocmask(SIG_SETMASK, signals, NULL);
	return command_pid;
}

static int
wait_for(pid_t child)
{
	int			status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			fatal("waitpid: %m");
	return WIFEXITED(status) ? WEXITSTATUS(status) : STATUS_SIGNAL + WTERMSIG(status);
}

int
tx_run(int argc, char **argv)
{
	char	   *mountpoint;
	char	   *directory;
	char	   *commit;
	sigset_t	signals;
	pid_t		child;
	int			status;

	if (argc < 5 || strcmp(argv[3], "--") != 0)
	{
		fputs(usage, argc == 3 && strcmp(argv[2], "--help") == 0 ? stdout : stderr);
		return argc == 3 && strcmp(argv[2], "--help") == 0 ? 0 : 1;
	}
	mountpoint = realpath(argv[2], NULL);
	if (mountpoint == NULL)
		fatal("directory \"%s\": %m", argv[2]);
	directory = format_string("%s/.blobfs/tx/%ld.%ld", mountpoint, (long) getpid(),
							  (long) time(NULL));
	commit = format_string("%s/.blobfs/commit/%ld", mountpoint, (long) getpid());
	signals = block_signals();
	if (mkdir(directory, 0700) != 0)
		fatal("no transaction in \"%s\": %s", mountpoint,
			  errno == ENOENT ? "it is no file system of blobfs that can be written" :
			  strerror(errno));
	child = start_command(directory, mountpoint, argv + 4, &signals);
	if (child < 0)
		message("fork: %m");
	status = child < 0 ? STATUS_CANNOT_RUN : wait_for(child);
	if (status != 0)
	{
		if (rmdir(directory) != 0)
			message("the transaction was not rolled back: %m");
		message("status %d: nothing was changed", status);
	}
	else if (rename(directory, commit) != 0)
	{
		/* EIO also if it cannot be found out. */
		message(errno == EIO ? "COMMIT has failed, or its outcome is unknown: %m" :
				"nothing was changed: COMMIT: %m");
		status = 1;
	}
	free(mountpoint);
	free(directory);
	free(commit);
	return status;
}
