/*
 * test/unit/refuse_syscalls.c
 *	  Run a program under a seccomp filter that refuses system calls as some systems do.
 *
 *	refuse_syscalls [--io-uring] [--aio] [--io-submit] [--o-direct] [--fallocate] [--threads] [--]
 *		program [arguments]
 *
 *	--io-uring	io_uring_setup, _enter and _register fail with EPERM
 *	--aio		io_setup fails with EAGAIN, as if fs.aio-max-nr were used up
 *	--io-submit	io_submit fails with EPERM
 *	--o-direct	open and openat with O_DIRECT fail with EINVAL
 *	--fallocate	fallocate fails with EOPNOTSUPP
 *	--threads	clone fails with EAGAIN for a thread, but not for a process
 *
 * Filters are inherited by children and cannot be taken off.  Exit status 125: could not set up
 * the filter; 127: could not run the program.  Build with: gcc -o refuse_syscalls refuse_syscalls.c
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OUR_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "add this architecture's AUDIT_ARCH_ constant"
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the low word of a system call's argument is taken from its first four bytes"
#endif

/* The same on all architectures. */
#ifndef __NR_io_uring_setup
#define __NR_io_uring_setup 425
#define __NR_io_uring_enter 426
#define __NR_io_uring_register 427
#endif

#define MAX_INSTRUCTIONS 64

static struct sock_filter program[MAX_INSTRUCTIONS];
static unsigned short program_length = 0;

static void
emit(struct sock_filter instruction)
{
	if (program_length == MAX_INSTRUCTIONS)
	{
		fprintf(stderr, "refuse_syscalls: filter too long\n");
		exit(125);
	}
	program[program_length++] = instruction;
}

static void
emit_load(unsigned int offset)
{
	emit((struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset));
}

static void
emit_return(unsigned int action)
{
	emit((struct sock_filter) BPF_STMT(BPF_RET | BPF_K, action));
}

/* Other architectures' system call numbers mean something else: let them pass. */
static void
emit_prologue(void)
{
	emit_load(offsetof(struct seccomp_data, arch));
	emit((struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCHITECTURE, 1, 0));
	emit_return(SECCOMP_RET_ALLOW);
}

/* Refuse a system call with any arguments. */
static void
emit_refuse(unsigned int number, int error)
{
	emit_load(offsetof(struct seccomp_data, nr));
	emit((struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
	emit_return(SECCOMP_RET_ERRNO | (error & SECCOMP_RET_DATA));
}

/* Refuse a system call that has any of these bits in one of its arguments. */
static void
emit_refuse_bits(unsigned int number, int argument_no, unsigned int bits, int error)
{
	emit_load(offsetof(struct seccomp_data, nr));
	emit((struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3));
	emit_load(offsetof(struct seccomp_data, args) + 8 * argument_no);
	emit((struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1));
	emit_return(SECCOMP_RET_ERRNO | (error & SECCOMP_RET_DATA));
}

static void
install(void)
{
	struct sock_fprog filter = {.len = program_length, .filter = program};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
	{
		perror("refuse_syscalls: prctl(PR_SET_NO_NEW_PRIVS)");
		exit(125);
	}
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0)
	{
		perror("refuse_syscalls: prctl(PR_SET_SECCOMP)");
		exit(125);
	}
}

int
main(int argc, char **argv)
{
	int			i;

	emit_prologue();
	for (i = 1; i < argc && strncmp(argv[i], "--", 2) == 0; i++)
	{
		if (strcmp(argv[i], "--") == 0)
		{
			i++;
			break;
		}
		else if (strcmp(argv[i], "--io-uring") == 0)
		{
			emit_refuse(__NR_io_uring_setup, EPERM);
			emit_refuse(__NR_io_uring_enter, EPERM);
			emit_refuse(__NR_io_uring_register, EPERM);
		}
		else if (strcmp(argv[i], "--aio") == 0)
			emit_refuse(__NR_io_setup, EAGAIN);
		else if (strcmp(argv[i], "--io-submit") == 0)
			emit_refuse(__NR_io_submit, EPERM);
		else if (strcmp(argv[i], "--o-direct") == 0)
		{
#ifdef __NR_open
			emit_refuse_bits(__NR_open, 1, O_DIRECT, EINVAL);
#endif
			emit_refuse_bits(__NR_openat, 2, O_DIRECT, EINVAL);
		}
		else if (strcmp(argv[i], "--fallocate") == 0)
			emit_refuse(__NR_fallocate, EOPNOTSUPP);
		else if (strcmp(argv[i], "--threads") == 0)
		{
			/* Its flags lie in memory, where a filter cannot look; libc takes clone() instead. */
			emit_refuse(__NR_clone3, ENOSYS);
			emit_refuse_bits(__NR_clone, 0, CLONE_THREAD, EAGAIN);
		}
		else
		{
			fprintf(stderr, "refuse_syscalls: unknown option \"%s\"\n", argv[i]);
			return 125;
		}
	}
	emit_return(SECCOMP_RET_ALLOW);

	if (i >= argc)
	{
		fprintf(stderr, "usage: refuse_syscalls [--io-uring] [--aio] [--io-submit] [--o-direct] "
				"[--fallocate] [--threads] program ...\n");
		return 125;
	}

	install();
	execvp(argv[i], &argv[i]);
	perror("refuse_syscalls: exec");
	return 127;
}
