/* `raw` on a disk that has bad sectors: the file DEVICE.bad has their offsets in hexadecimal, one a
 * line. Reads of them fail as the kernel has it. A write mends them, but for lines that begin with
 * `!`: those fail too. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What there is of bad sectors in a range. `writes`: they are mended. */
static int is_bad(int fd, unsigned long long from, size_t count, int writes) {
  char link[64], path[4096], left[4096] = "", line[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 8);
  strcpy(path + (n < 0 ? 0 : n), ".bad");
  FILE *list = fopen(path, "r");
  int bad = 0;
  while (list && fgets(line, sizeof line, list)) {
    int stays = line[0] == '!';
    unsigned long long at = strtoull(line + stays, NULL, 16);
    int within = from <= at && at < from + count;
    bad |= within && (stays || !writes);
    if (!within || stays)
      strncat(left, line, sizeof left - strlen(left) - 1);
  }
  if (list)
    fclose(list);
  if (list && writes && (list = fopen(path, "w"))) {
    fputs(left, list);
    fclose(list);
  }
  errno = ENODATA;
  return bad;
}

static ssize_t worn_pread(int fd, void *to, size_t count, off_t at) {
  return is_bad(fd, (unsigned long long)at, count, 0) ? -1 : pread(fd, to, count, at);
}

static ssize_t worn_pwrite(int fd, const void *from, size_t count, off_t at) {
  return is_bad(fd, (unsigned long long)at, count, 1) ? -1 : pwrite(fd, from, count, at);
}

#define pread worn_pread
#define pwrite worn_pwrite
#include "../../../../plugins/raw.c"
