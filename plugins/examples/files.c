/* The engine `files`: plain calls into the page cache. An example to begin with.
 * SPDX-License-Identifier: Apache-2.0
 *
 *     cc -O2 -Wall -shared -fPIC -I.. -o files.so files.c
 *     hayloft engine test ./files.so /data/1
 */
#define _GNU_SOURCE
#include "hayloft_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct volume {
  int sync_all; /* option "sync=all": every sync is one of the whole inode */
};

struct file {
  const struct volume *volume;
  int fd;
};

static _Thread_local const char *why;

static int failed(const char *doing) {
  why = doing;
  return errno ? -errno : -EIO;
}

static int open_volume(const char *directory, const char *options, void **out) {
  (void)directory;
  why = NULL;
  int all = strcmp(options, "sync=all") == 0;
  if (*options && !all) {
    why = "the only option is sync=all";
    return -EINVAL;
  }
  struct volume *volume = malloc(sizeof *volume);
  if (!volume)
    return failed("out of memory");
  volume->sync_all = all;
  *out = volume;
  return 0;
}

static void close_volume(void *volume) { free(volume); }

static int open_file(void *volume, const char *path, int mode, void **out) {
  why = NULL;
  int flags = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  if (mode == HAYLOFT_CREATE_NEW)
    flags |= O_RDWR | O_CREAT | O_EXCL;
  else
    flags |= mode == HAYLOFT_READ_ONLY ? O_RDONLY : O_RDWR;
  int fd = open(path, flags, 0644);
  if (fd < 0)
    return failed("open");
  struct stat found;
  if (fstat(fd, &found) < 0 || !S_ISREG(found.st_mode)) {
    close(fd);
    errno = EISDIR;
    return failed("not a regular file");
  }
  struct file *file = malloc(sizeof *file);
  if (!file) {
    close(fd);
    errno = ENOMEM;
    return failed("out of memory");
  }
  file->volume = volume;
  file->fd = fd;
  *out = file;
  return 0;
}

static void close_file(void *file) {
  close(((struct file *)file)->fd);
  free(file);
}

static int64_t read_file(void *file, void *buffer, uint64_t count, uint64_t offset) {
  why = NULL;
  ssize_t got = pread(((struct file *)file)->fd, buffer, count, (off_t)offset);
  return got < 0 ? failed("pread") : got;
}

static int64_t write_file(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  why = NULL;
  ssize_t put = pwrite(((struct file *)file)->fd, buffer, count, (off_t)offset);
  return put < 0 ? failed("pwrite") : put;
}

static int truncate_file(void *file, uint64_t length) {
  why = NULL;
  return ftruncate(((struct file *)file)->fd, (off_t)length) < 0 ? failed("ftruncate") : 0;
}

static int sync_file(void *file, int what) {
  why = NULL;
  const struct file *f = file;
  int all = what == HAYLOFT_SYNC_ALL || f->volume->sync_all;
  return (all ? fsync(f->fd) : fdatasync(f->fd)) < 0 ? failed("sync") : 0;
}

static int64_t length(void *file) {
  why = NULL;
  struct stat found;
  return fstat(((struct file *)file)->fd, &found) < 0 ? failed("fstat") : found.st_size;
}

static int allocate(void *file, uint64_t bytes) {
  why = NULL;
  int fd = ((struct file *)file)->fd;
  return fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) < 0 ? failed("fallocate") : 0;
}

static const char *last_error(void) { return why; }

static const struct hayloft_engine table = {
    .abi = HAYLOFT_ENGINE_ABI,
    .size = sizeof(struct hayloft_engine),
    .name = "files",
    .threads = HAYLOFT_ANY_CALLS,
    .capabilities = HAYLOFT_IN_FILES | HAYLOFT_OUTLIVES_PROCESS | HAYLOFT_PAGE_CACHE,
    .memory_alignment = 1,
    .open_volume = open_volume,
    .close_volume = close_volume,
    .open = open_file,
    .close = close_file,
    .read = read_file,
    .write = write_file,
    .truncate = truncate_file,
    .sync = sync_file,
    .length = length,
    .allocate = allocate,
    .last_error = last_error,
};

const struct hayloft_engine *hayloft_engine(void) { return &table; }
