/* The engine `raw`: blocks on a disk or a partition without a file system, around the page cache.
 * SPDX-License-Identifier: Apache-2.0
 *
 *     cc -O2 -Wall -shared -fPIC -o raw.so raw.c -lpthread
 *     hayloft.io.engine./data/1 = plugin:/path/of/raw.so /dev/disk/by-id/... discard=yes
 *
 * The directory is on another disk, which is flash where this one turns: names, checksums and
 * stubs are there. A file serves in place of a disk, for trials. Options behind the path:
 *     discard=yes  the device is told which room is free; the node asks for it once no power loss
 *                  brings a stub back that names that room
 *     wipe=WHAT:SIZE  takes a device that has something else on it, which is lost. WHAT is what
 *                  the refusal calls it, SIZE the bytes of the device. Without effect once the
 *                  directory has a device: take it away then, since names of disks may change.
 *
 * Where blocks are is the node's choice, and its stubs say it. A device is only opened if no
 * other program and no mount has it. */
#define _GNU_SOURCE
#include "hayloft_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "raw/signatures.h"

#define SIZE_MIN (16u << 20)  /* bytes; the node's own limit, so that nothing is wiped in vain */
#define BOUNCE (1u << 20)     /* bytes that one call copies, at most */
#define BLOCK_MAX 4096u       /* bytes that a device writes at least, at most */
#define UNREADABLE_MAX 8      /* pieces of a first MiB that a disk need not give */
#define LOCKS 64              /* of blocks that are written in part */
#define FREE_WITHIN_MS 10000  /* a volume that comes back waits for its files to be closed */
#define LOOK_EVERY_MS 20

struct device {
  char *path;
  int fd;
  int is_disk; /* no file */
  int discard;
  uint64_t block; /* bytes: what transfers are multiples of; 1 through the page cache */
  uint64_t size;
  pthread_mutex_t parts[LOCKS];
};

static _Thread_local char why[400];

__attribute__((format(printf, 2, 3))) static int say(int answer, const char *form, ...) {
  va_list words;
  va_start(words, form);
  vsnprintf(why, sizeof why, form, words);
  va_end(words);
  return answer;
}

static int shrank(const struct device *device) {
  uint64_t size = 0;
  return ioctl(device->fd, BLKGETSIZE64, &size) || size < device->size;
}

/* What the node hears of errno: that the device is lost, but for what it may try again, and for
 * room, which files and thin disks lack. The kernel says so of a disk that shrank to nothing, too. */
static int failed(const struct device *device, const char *doing, uint64_t at) {
  int code = errno;
  say(0, "%s at %llu of %s: %s", doing, (unsigned long long)at, device->path, strerror(code));
  switch (code) {
  case EINTR: case EAGAIN: case ENOMEM: case EROFS: case ENODEV: case EINVAL: return -code;
  case ENOSPC: return device->is_disk && shrank(device) ? -ENODEV : -ENOSPC;
  case EDQUOT: return -ENOSPC;
  case ENXIO: return -ENODEV;
  case EPERM: return -EROFS;
  default: return -EIO;
  }
}

static int gone(const struct device *device, uint64_t at) {
  return say(-ENODEV, "%s ends at %llu and had %llu bytes: it is gone or shrank", device->path,
             (unsigned long long)at, (unsigned long long)device->size);
}

static void *aligned(uint64_t bytes) {
  void *buffer = NULL;
  return posix_memalign(&buffer, BLOCK_MAX, bytes) ? NULL : buffer;
}

/* ---- opening ---- */

static void sleep_ms(long ms) {
  struct timespec t = {.tv_sec = 0, .tv_nsec = ms * 1000000};
  nanosleep(&t, NULL);
}

/* Opens the device for this process alone. The kernel refuses a disk that is mounted, or that
 * another opens so; of a file a lock says it. *found: what it is. */
static int open_alone(struct device *device, struct stat *found) {
  int flags = O_RDWR | O_EXCL | O_DIRECT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  for (int waited = 0;;) {
    device->fd = open(device->path, flags);
    if (device->fd < 0 && errno == EINVAL && flags & O_DIRECT) {
      flags &= ~O_DIRECT; /* of a file, whose file system has no such thing */
      continue;
    }
    if (device->fd < 0 && errno != EBUSY)
      return say(-errno, "%s does not open", device->path);
    if (device->fd >= 0) {
      if (fstat(device->fd, found))
        return failed(device, "fstat", 0);
      if (!S_ISREG(found->st_mode) || flock(device->fd, LOCK_EX | LOCK_NB) == 0)
        break;
      close(device->fd);
      device->fd = -1;
    }
    if (waited >= FREE_WITHIN_MS)
      return say(-EBUSY, "%s is in use: it is mounted, or a part of LVM, md or swap, or another "
                 "process has it (lsblk, fuser -v)", device->path);
    sleep_ms(LOOK_EVERY_MS);
    waited += LOOK_EVERY_MS;
  }
  device->block = flags & O_DIRECT ? BLOCK_MAX : 1;
  return 0;
}

/* Its size, and what transfers must be multiples of. */
static int measure(struct device *device, const struct stat *found) {
  device->size = (uint64_t)found->st_size;
  device->is_disk = S_ISBLK(found->st_mode);
  if (device->is_disk) {
    int block = 0, read_only = 0;
    if (ioctl(device->fd, BLKGETSIZE64, &device->size) || ioctl(device->fd, BLKSSZGET, &block) ||
        ioctl(device->fd, BLKROGET, &read_only))
      return failed(device, "asking what it is", 0);
    if (read_only)
      return say(-EROFS, "%s is read-only", device->path);
    if (block < 512 || block > (int)BLOCK_MAX || block & (block - 1))
      return say(-EINVAL, "%s has blocks of %d bytes, which cannot be used", device->path, block);
    device->block = (uint64_t)block;
  } else if (!S_ISREG(found->st_mode)) {
    return say(-EINVAL, "%s is no disk and no file", device->path);
  }
  device->size -= device->size % device->block;
  if (device->size < SIZE_MIN)
    return say(-EINVAL, "%s has %llu bytes, which is too small", device->path,
               (unsigned long long)device->size);
  return 0;
}

/* Reads a range of one end of the device. */
static int read_range(const struct device *device, unsigned char *to, uint64_t count, uint64_t at) {
  for (uint64_t done = 0; done < count;) {
    ssize_t n = pread(device->fd, to + done, count - done, (off_t)(at + done));
    if (n < 0)
      return failed(device, "reading", at + done);
    if (n == 0)
      return gone(device, at + done);
    done += (uint64_t)n;
  }
  return 0;
}

/* Reads the first MiB. Of a device of Hayloft's a few pieces may be unreadable, and count as zeros:
 * it has two headers, and the node mends what is lost. */
static int read_head(const struct device *device, unsigned char *head) {
  int answer = read_range(device, head, EDGE, 0), unreadable = 0;
  if (answer != -EIO)
    return answer;
  for (uint64_t at = 0; at < EDGE; at += BLOCK_MAX) {
    int of_piece = read_range(device, head + at, BLOCK_MAX, at);
    if (of_piece && (of_piece != -EIO || ++unreadable > UNREADABLE_MAX))
      return of_piece;
    if (of_piece)
      memset(head + at, 0, BLOCK_MAX);
  }
  return has_header(head) ? 0 : answer;
}

/* Zeros where the node and all formats of the table have their marks. */
static int clear(const struct device *device, unsigned char *zeros) {
  memset(zeros, 0, EDGE);
  const uint64_t places[] = {device->size - EDGE, 0};
  for (int i = 0; i < 2; i++)
    for (uint64_t done = 0; done < EDGE;) {
      ssize_t n = pwrite(device->fd, zeros + done, EDGE - done, (off_t)(places[i] + done));
      if (n <= 0)
        return failed(device, "wiping", places[i] + done);
      done += (uint64_t)n;
    }
  return fdatasync(device->fd) ? failed(device, "flushing", 0) : 0;
}

/* Whether the directory has neither a device nor blocks. */
static int is_new(const char *directory) {
  const char *const names[] = {"hayloft.device", "current/VERSION"};
  for (int i = 0; i < 2; i++) {
    char path[4096];
    int len = snprintf(path, sizeof path, "%s/%s", directory, names[i]);
    if (len < 0 || (size_t)len >= sizeof path || access(path, F_OK) == 0 || errno != ENOENT)
      return 0;
  }
  return 1;
}

/* Refuses what is another's. `wipe`: what may be lost, or NULL. */
static int must_be_ours(const struct device *device, const char *directory, const char *wipe,
                        unsigned char *edges) {
  int answer = read_head(device, edges);
  /* Blocks are at the end of a device of Hayloft's, and may be unreadable. */
  if (!answer && has_header(edges))
    memset(edges + EDGE, 0, EDGE);
  else if (!answer)
    answer = read_range(device, edges + EDGE, EDGE, device->size - EDGE);
  if (answer)
    return answer;
  const char *there = others(edges, edges + EDGE, device->size);
  if (!there)
    return 0;
  if (has_header(edges))
    return say(-EMEDIUMTYPE, "%s begins as a device of Hayloft's and has %s on it too: another "
               "program wrote to it. Look what that was; wipefs removes what it left",
               device->path, there);
  if (!is_new(directory)) {
    if (strcmp(there, "data") == 0)
      return 0; /* the node says which device it wants */
    return say(-EMEDIUMTYPE, "%s has %s on it: it is not the device that the directory had",
               device->path, there);
  }
  char wanted[64];
  snprintf(wanted, sizeof wanted, "%s:%llu", there, (unsigned long long)device->size);
  if (!wipe || strcmp(wipe, wanted))
    return say(-EMEDIUMTYPE, "%s has something on it (%s): if ALL OF IT may be lost, add wipe=%s "
               "behind the path", device->path, there, wanted);
  return clear(device, edges);
}

static int read_options(struct device *device, char *text, const char **wipe) {
  const char *wrong = "the options behind the path are discard=yes and wipe=WHAT:SIZE";
  char *rest = NULL;
  char *word = strtok_r(text, " \t\r\n", &rest);
  if (!word || *word != '/')
    return say(-EINVAL, "name the disk behind the plug-in: plugin:/path/of/raw.so /dev/...");
  device->path = strdup(word);
  if (!device->path)
    return say(-ENOMEM, "out of memory");
  while ((word = strtok_r(NULL, " \t\r\n", &rest))) {
    if (strcmp(word, "discard=yes") == 0)
      device->discard = 1;
    else if (strncmp(word, "wipe=", 5) == 0)
      *wipe = word + 5;
    else
      return say(-EINVAL, "%s", wrong);
  }
  return 0;
}

static void close_volume(void *volume) {
  struct device *device = volume;
  if (device->fd >= 0)
    close(device->fd);
  free(device->path);
  free(device);
}

static int open_volume(const char *directory, const char *options, void **out) {
  why[0] = 0;
  struct device *device = calloc(1, sizeof *device);
  if (device)
    device->fd = -1;
  char *text = strdup(options);
  unsigned char *edges = aligned(2 * EDGE);
  int answer = device && text && edges ? 0 : say(-ENOMEM, "out of memory");
  const char *wipe = NULL;
  struct stat found;
  if (!answer) {
    for (int i = 0; i < LOCKS; i++)
      pthread_mutex_init(&device->parts[i], NULL);
    answer = read_options(device, text, &wipe);
  }
  if (!answer)
    answer = open_alone(device, &found);
  if (!answer)
    answer = measure(device, &found);
  if (!answer)
    answer = must_be_ours(device, directory, wipe, edges);
  free(edges);
  free(text);
  if (answer && device)
    close_volume(device);
  if (!answer)
    *out = device;
  return answer;
}

/* The one file is the device, which close_volume closes. */
static int open_file(void *volume, const char *path, int mode, void **file) {
  (void)path;
  (void)mode;
  *file = volume;
  return 0;
}

static void close_file(void *file) { (void)file; }

/* ---- transfers; each moves as much as one call of the kernel can, and the node asks again ---- */

static uint64_t down(const struct device *device, uint64_t n) { return n - n % device->block; }

static int is_aligned(const struct device *device, const void *buffer) {
  return (uintptr_t)buffer % device->block == 0;
}

/* Reads `count` bytes of whole blocks. */
static int64_t get(const struct device *device, void *into, uint64_t count, uint64_t at) {
  ssize_t n = pread(device->fd, into, count, (off_t)at);
  if (n < 0)
    return failed(device, "reading", at);
  return n ? n : gone(device, at);
}

static int64_t put(const struct device *device, const void *from, uint64_t count, uint64_t at) {
  ssize_t n = pwrite(device->fd, from, count, (off_t)at);
  if (n < 0)
    return failed(device, "writing", at);
  return n ? n : gone(device, at);
}

static int64_t read_at(void *file, void *buffer, uint64_t count, uint64_t offset) {
  const struct device *device = file;
  why[0] = 0;
  if (offset >= device->size)
    return 0;
  count = count < device->size - offset ? count : device->size - offset;
  uint64_t skipped = offset % device->block;
  if (!skipped && count >= device->block && is_aligned(device, buffer))
    return get(device, buffer, down(device, count), offset);
  uint64_t n = count < BOUNCE - skipped ? count : BOUNCE - skipped;
  uint64_t whole = down(device, skipped + n + device->block - 1);
  char *bounce = aligned(whole);
  if (!bounce)
    return say(-ENOMEM, "out of memory");
  int64_t got = get(device, bounce, whole, offset - skipped);
  if (got > 0) {
    got = got > (int64_t)skipped ? got - (int64_t)skipped : gone(device, offset);
    got = got < (int64_t)n ? got : (int64_t)n;
  }
  if (got > 0)
    memcpy(buffer, bounce + skipped, (size_t)got);
  free(bounce);
  return got;
}

/* Writes a part of one block: what is beside it there stays. Two that write to one block at the
 * same time wait for each other. */
static int64_t put_part(struct device *device, char *bounce, const void *from, uint64_t count,
                        uint64_t offset) {
  uint64_t skipped = offset % device->block, at = offset - skipped;
  pthread_mutex_t *lock = &device->parts[at / device->block % LOCKS];
  pthread_mutex_lock(lock);
  int64_t answer = get(device, bounce, device->block, at);
  if (answer == (int64_t)device->block) {
    memcpy(bounce + skipped, from, count);
    answer = put(device, bounce, device->block, at);
  }
  pthread_mutex_unlock(lock);
  if (answer < 0)
    return answer;
  return answer == (int64_t)device->block ? (int64_t)count : gone(device, at);
}

static int64_t write_at(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  struct device *device = file;
  why[0] = 0;
  if (offset >= device->size)
    return say(-EINVAL, "a write behind the end of the device");
  count = count < device->size - offset ? count : device->size - offset;
  uint64_t skipped = offset % device->block;
  uint64_t whole = skipped ? 0 : down(device, count);
  if (whole && is_aligned(device, buffer))
    return put(device, buffer, whole, offset);
  whole = whole < BOUNCE ? whole : BOUNCE;
  char *bounce = aligned(whole ? whole : device->block);
  if (!bounce)
    return say(-ENOMEM, "out of memory");
  int64_t answer;
  if (whole) {
    memcpy(bounce, buffer, whole);
    answer = put(device, bounce, whole, offset);
  } else {
    uint64_t room = device->block - skipped;
    answer = put_part(device, bounce, buffer, count < room ? count : room, offset);
  }
  free(bounce);
  return answer;
}

static int cut(void *file, uint64_t length) {
  (void)file;
  (void)length;
  return say(-ENOTSUP, "a device has its size");
}

static int make_durable(void *file, int what) {
  const struct device *device = file;
  (void)what;
  why[0] = 0;
  return fdatasync(device->fd) ? failed(device, "flushing", 0) : 0;
}

static int64_t length(void *file) {
  const struct device *device = file;
  return (int64_t)device->size;
}

static int trim(void *file, uint64_t offset, uint64_t count) {
  const struct device *device = file;
  why[0] = 0;
  if (!device->discard)
    return say(-EOPNOTSUPP, "discard=yes is not set");
  uint64_t range[2] = {offset, count};
  int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  int answer = device->is_disk ? ioctl(device->fd, BLKDISCARD, range)
                               : fallocate(device->fd, mode, (off_t)offset, (off_t)count);
  if (answer && errno == EOPNOTSUPP)
    return say(-EOPNOTSUPP, "%s takes no discards", device->path);
  return answer ? failed(device, "discarding", offset) : 0;
}

static const char *last_error(void) { return why[0] ? why : NULL; }

static const struct hayloft_engine table = {
    .abi = HAYLOFT_ENGINE_ABI,
    .size = sizeof table,
    .name = "raw",
    .threads = HAYLOFT_ANY_CALLS,
    .capabilities = HAYLOFT_DEVICE | HAYLOFT_OUTLIVES_PROCESS,
    .memory_alignment = BLOCK_MAX,
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
