/* The engine `device`: a device for blocks is a file or a disk of this machine. An example of
 * HAYLOFT_DEVICE. SPDX-License-Identifier: Apache-2.0
 *
 *     cc -O2 -Wall -shared -fPIC -I.. -o device.so device.c
 *     hayloft.io.engine./data/1 = plugin:/path/of/device.so /dev/disk/by-id/...
 */
#define _GNU_SOURCE
#include "hayloft_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <unistd.h>

struct device {
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
  if (*options != '/') {
    why = "name the device behind the plug-in: plugin:/path/of/device.so /dev/...";
    return -EINVAL;
  }
  struct device *device = malloc(sizeof *device);
  if (!device)
    return failed("out of memory");
  device->fd = open(options, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (device->fd < 0) {
    int answer = failed("the device does not open");
    free(device);
    return answer;
  }
  *out = device;
  return 0;
}

static void close_volume(void *volume) {
  struct device *device = volume;
  close(device->fd);
  free(device);
}

/* The one file is the device, which close_volume closes. */
static int open_file(void *volume, const char *path, int mode, void **file) {
  (void)path;
  (void)mode;
  *file = volume;
  return 0;
}

static void close_file(void *file) { (void)file; }

static int64_t read_at(void *file, void *buffer, uint64_t count, uint64_t offset) {
  const struct device *device = file;
  ssize_t n = pread(device->fd, buffer, count, (off_t)offset);
  return n < 0 ? failed("pread") : n;
}

static int64_t write_at(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  const struct device *device = file;
  ssize_t n = pwrite(device->fd, buffer, count, (off_t)offset);
  return n < 0 ? failed("pwrite") : n;
}

static int cut(void *file, uint64_t length) {
  (void)file;
  (void)length;
  why = "a device has its size";
  return -ENOTSUP;
}

static int make_durable(void *file, int what) {
  const struct device *device = file;
  (void)what;
  return fdatasync(device->fd) ? failed("fdatasync") : 0;
}

static int64_t length(void *file) {
  const struct device *device = file;
  off_t end = lseek(device->fd, 0, SEEK_END);
  return end < 0 ? failed("lseek") : end;
}

static int trim(void *file, uint64_t offset, uint64_t count) {
  const struct device *device = file;
  int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  return fallocate(device->fd, mode, (off_t)offset, (off_t)count) ? failed("fallocate") : 0;
}

static const char *last_error(void) { return why; }

static const struct hayloft_engine table = {
    .abi = HAYLOFT_ENGINE_ABI,
    .size = sizeof table,
    .name = "device",
    .threads = HAYLOFT_ANY_CALLS,
    .capabilities = HAYLOFT_DEVICE | HAYLOFT_OUTLIVES_PROCESS | HAYLOFT_PAGE_CACHE,
    .memory_alignment = 1,
    .open_volume = open_volume,
    .close_volume = close_volume,
    .open = open_file,
    .close = close_file,
    .read = read_at,
    .write = write_at,
    .truncate = cut,
    .sync = make_durable,
    .length = length,
    .last_error = last_error,
    .trim = trim,
};

const struct hayloft_engine *hayloft_engine(void) { return &table; }
