/* Objects that cannot be loaded, or should not have been: -DWAY=n. */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define hayloft_engine(nothing) files_engine(nothing)
#include "../../../../plugins/examples/files.c"
#undef hayloft_engine

enum way {
  EXIT_0 = 1,
  EXIT_3,
  EXIT_AT_ONCE,
  ABORTS,
  SEGFAULTS,
  OVERFLOWS,
  DIVIDES,
  KILLED,
  TERMINATED,
  FORKS_AND_EXITS,
  TALKS_WITHOUT_END,
  PRETENDS,
  HANGS,
  TABLE_NOWHERE,
  TABLE_CRASHES,
  TABLE_EXITS,
  NAME_NOWHERE,
  UNDEFINED,
};

#if WAY == 18
extern int nothing_has_this(void);
int asks_for_it(void) { return nothing_has_this(); }
#endif

static volatile int zero;
static int *volatile nowhere;

static int deeper(volatile char *above) {
  volatile char room[4096];
  room[0] = above ? above[0] : 1;
  return zero ? room[0] : deeper(room) + room[0];
}

__attribute__((constructor)) static void loaded(void) {
  switch ((enum way)WAY) {
  case EXIT_0: exit(0);
  case EXIT_3: fprintf(stderr, "no licence\nfound\n"); exit(3);
  case EXIT_AT_ONCE: _exit(0);
  case ABORTS: abort();
  case SEGFAULTS: *nowhere = 1; break;
  case OVERFLOWS: exit(deeper(NULL)); break;
  case DIVIDES: exit(1 / zero); break;
  case KILLED: raise(SIGKILL); break;
  case TERMINATED: raise(SIGTERM); break;
  case FORKS_AND_EXITS:
    if (fork() == 0)
      sleep(600);
    exit(0);
  case TALKS_WITHOUT_END:
    for (int i = 0; i < 1000000; i++)
      fprintf(stderr, "loading part %d\n", i);
    exit(5);
  /* What only the node's own process may say. */
  case PRETENDS: printf("loaded\n"); fflush(stdout); exit(0);
  case HANGS:
    for (;;)
      pause();
  default: break;
  }
}

static struct hayloft_engine bad;

const struct hayloft_engine *hayloft_engine(void) {
  bad = table;
  switch ((enum way)WAY) {
  case TABLE_NOWHERE: return (const struct hayloft_engine *)(uintptr_t)0x1000;
  /* The first is taken for a full stack by the handler of a Rust program, which lets it pass. */
  case TABLE_CRASHES: raise(SIGBUS); raise(SIGBUS); break;
  case TABLE_EXITS: exit(0); break;
  case NAME_NOWHERE: bad.name = (const char *)(uintptr_t)16; break;
  default: break;
  }
  return &bad;
}
