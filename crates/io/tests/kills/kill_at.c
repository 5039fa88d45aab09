/* Kills a program, as kill -9 does, before the Nth of its system calls that change what it keeps:
 * names, lengths, attributes, bytes, and the syncs of them.
 *
 *     kill_at N PROGRAM ARGUMENTS...
 *
 * Exit code: 0 it ended well before that, 9 it was killed, 77 tracing is not allowed here, 1 else.
 * Needs Linux 5.3. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int changes(uint64_t call, const uint64_t *arguments) {
  switch (call) {
  case SYS_pwrite64:
  case SYS_pwritev:
  case SYS_pwritev2:
  case SYS_fallocate:
  case SYS_ftruncate:
  case SYS_fsetxattr:
  case SYS_fsync:
  case SYS_fdatasync:
  case SYS_syncfs:
  case SYS_mkdirat:
  case SYS_renameat:
  case SYS_renameat2:
  case SYS_linkat:
  case SYS_unlinkat:
#ifdef SYS_rename
  case SYS_mkdir:
  case SYS_rename:
  case SYS_link:
  case SYS_unlink:
  case SYS_rmdir:
#endif
    return 1;
  case SYS_openat:
    return (arguments[2] & O_CREAT) != 0;
  case SYS_write:
  case SYS_writev:
    return arguments[0] > STDERR_FILENO;
  default:
    return 0;
  }
}

static void be_traced(char **program) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) || ptrace(PTRACE_TRACEME, 0, 0, 0))
    _exit(77);
  raise(SIGSTOP);
  execv(program[0], program);
  _exit(1);
}

/* Whether thread `id` is about to make a call that counts. */
static int begins_change(pid_t id) {
  struct __ptrace_syscall_info info;
  if (ptrace(PTRACE_GET_SYSCALL_INFO, id, sizeof info, &info) <= 0)
    return 0;
  return info.op == PTRACE_SYSCALL_INFO_ENTRY && changes(info.entry.nr, info.entry.args);
}

int main(int count, char **arguments) {
  if (count < 3)
    return 1;
  long left = strtol(arguments[1], NULL, 10);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  pid_t program = fork();
  if (program == 0)
    be_traced(arguments + 2);
  int status;
  if (program < 0 || waitpid(program, &status, 0) != program)
    return 1;
  if (!WIFSTOPPED(status))
    return 77;
  long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL |
                 PTRACE_O_TRACEEXEC;
  if (ptrace(PTRACE_SETOPTIONS, program, 0, options) || ptrace(PTRACE_SYSCALL, program, 0, 0))
    return 77;
  int killed = 0;
  for (;;) {
    pid_t id = waitpid(-1, &status, __WALL);
    if (id < 0)
      return 1;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (id != program)
        continue;
      return killed ? 9 : WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
    }
    int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
      signal = 0;
      if (!killed && begins_change(id) && --left <= 0) {
        killed = 1;
        kill(program, SIGKILL); /* the call is not made any more */
      }
    } else if (signal == SIGTRAP || signal == SIGSTOP) {
      signal = 0; /* a new thread, or the program begins */
    }
    ptrace(PTRACE_SYSCALL, id, 0, signal);
  }
}
