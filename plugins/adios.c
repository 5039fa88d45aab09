/* The engine `adios`: blocks in objects of ADIOS2 (2.12), the method of HadioFS.
 * SPDX-License-Identifier: Apache-2.0
 *
 *     scripts/fetch-adios
 *     cc -O2 -Wall -shared -fPIC -o adios.so adios.c -ldl -lpthread
 *     hayloft.io.engine./data/1 = plugin:/path/of/adios.so library=/path/of/libadios2_c.so size=1T
 *
 * Options (sizes are bytes, or end in K, M, G or T):
 *     library=PATH      the C library, which PyPI's wheel `adios2` has; it is opened at run time
 *     size=SIZE         of the device; the directory must have room for it and two chunks
 *     chunk=SIZE        of an object: 1M to 1G, a multiple of 64K; 32M
 *     step=SIZE         written and read at once: 64K to 64M, a divisor of chunk, of which it has
 *                       4096 at most; 4M or 64K
 *     objects=DIR       where objects are: DIRECTORY/hayloft.adios
 *     close=sync|async  async: objects are made by a thread of their own, at most two late
 *     direct=yes        objects are written past the page cache
 *
 * The device is cut in chunks: the node's first MiB, then all of one size. A chunk that is not
 * whole is the file `N.tail`, written through the page cache. When all of it has been written it
 * becomes the dataset `N.bp`: written, closed, synced, renamed; then the tail goes. Where a kill
 * left both they are the same, and the object is durable: the tail goes. An object that is written
 * to becomes a tail first. So no acknowledgement rests on a close, also not with close=async. */
#define _GNU_SOURCE
#include "hayloft_engine.h"

#include "adios/objects.h"

#include <linux/falloc.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <time.h>

#define HEAD (1u << 20) /* bytes that the node has for itself; never an object */
#define UNIT (64u << 10)
#define CHUNKS_MAX (1u << 18)
#define READERS 32       /* objects that are open for reading */
#define UNSYNCED_MAX 128 /* tails that are open because no sync has covered them */
#define LATE_MAX 2
#define LOCK_WITHIN_S 10 /* a volume that comes back waits for its files to be closed */

enum { EMPTY, TAIL, OBJECT };

/* What of a unit was written, as far as is known. It makes a chunk whole; nothing depends on it. */
struct part {
  uint32_t from, to;
};

struct chunk {
  pthread_rwlock_t lock; /* written: the chunk changes its form, or is synced */
  int form;
  int fd;             /* of a tail that no sync has covered, or -1 */
  struct part *parts; /* of a tail; of an object: units that are not needed have from = 1 */
  uint32_t full;      /* units of a tail that were written; of an object: not needed */
};

struct volume {
  char *directory;
  int dir, lock_fd;
  struct shape shape;
  int direct, late_close;
  uint64_t count; /* of chunks */
  struct chunk *chunks;
  pthread_mutex_t lock; /* of fd, parts and full of tails, and of the next four */
  uint32_t *unsynced;   /* numbers of chunks with a descriptor */
  uint32_t unsynced_count;
  uint64_t late[LATE_MAX];
  int late_count, ends, late_error;
  pthread_cond_t changed; /* late, late_count, ends */
  pthread_t closer;
  pthread_mutex_t sync_lock;
  atomic_int names_changed, inherited, broken;
  pthread_mutex_t readers_lock;
  pthread_cond_t reader_free;
  uint64_t uses;
  struct reader readers[READERS];
};

static uint64_t bytes_of(const struct volume *v, uint64_t index) {
  return index ? v->shape.chunk : HEAD;
}

static void name_of(char *name, uint64_t index, const char *suffix) {
  snprintf(name, NAME_BYTES, "%llu.%s", (unsigned long long)index, suffix);
}

/* ---- objects that are open for reading ---- */

static int with_reader(struct volume *v, uint64_t index, char *into, uint64_t count, uint64_t at) {
  struct reader *mine = NULL;
  pthread_mutex_lock(&v->readers_lock);
  while (!mine) {
    for (int i = 0; i < READERS; i++)
      if (v->readers[i].index == index)
        mine = &v->readers[i];
    for (int i = 0; !mine && i < READERS; i++)
      if (!v->readers[i].users) {
        mine = &v->readers[i];
        for (int other = i + 1; other < READERS; other++)
          if (!v->readers[other].users && v->readers[other].used < mine->used)
            mine = &v->readers[other];
      }
    if (!mine)
      pthread_cond_wait(&v->reader_free, &v->readers_lock);
  }
  mine->index = index;
  mine->users++;
  mine->used = ++v->uses;
  pthread_mutex_unlock(&v->readers_lock);
  pthread_mutex_lock(&mine->lock);
  if (mine->opened != index)
    close_reader(mine);
  int answer = mine->engine ? 0 : open_reader(&v->shape, mine, index);
  if (!answer)
    answer = get(&v->shape, mine, into, count, at);
  pthread_mutex_unlock(&mine->lock);
  pthread_mutex_lock(&v->readers_lock);
  mine->users--;
  pthread_cond_signal(&v->reader_free);
  pthread_mutex_unlock(&v->readers_lock);
  return answer;
}

/* The caller holds the chunk's lock for writing, so it has no users. */
static void forget_reader(struct volume *v, uint64_t index) {
  pthread_mutex_lock(&v->readers_lock);
  for (int i = 0; i < READERS; i++)
    if (v->readers[i].index == index) {
      close_reader(&v->readers[i]);
      v->readers[i].index = UINT64_MAX;
      v->readers[i].used = 0;
    }
  pthread_mutex_unlock(&v->readers_lock);
}

/* ---- what of a chunk was written ---- */

/* Notes a write. Whether the tail has all its bytes now. */
static int note(struct volume *v, uint64_t index, uint64_t at, uint64_t count) {
  struct chunk *c = &v->chunks[index];
  if (!index || !c->parts)
    return 0;
  for (uint64_t end = at + count; at < end;) {
    struct part *p = &c->parts[at / UNIT];
    uint32_t from = at % UNIT, to = end - at < UNIT - from ? from + (uint32_t)(end - at) : UNIT;
    int was = p->from == 0 && p->to == UNIT;
    if (from <= p->to && to >= p->from && p->to) {
      p->from = from < p->from ? from : p->from;
      p->to = to > p->to ? to : p->to;
    } else if (to - from > p->to - p->from) {
      p->from = from;
      p->to = to;
    }
    c->full += !was && p->from == 0 && p->to == UNIT;
    at += to - from;
  }
  return c->full == v->shape.chunk / UNIT;
}

static int fresh_parts(struct volume *v, struct chunk *c) {
  free(c->parts);
  c->full = 0;
  c->parts = calloc(v->shape.chunk / UNIT, sizeof *c->parts);
  return c->parts ? 0 : say(-ENOMEM, "out of memory");
}

/* ---- forms; the caller holds the chunk's lock for writing ---- */

/* No sync is owed for the tail any more. */
static void close_tail(struct volume *v, uint64_t index) {
  struct chunk *c = &v->chunks[index];
  pthread_mutex_lock(&v->lock);
  for (uint32_t i = 0; i < v->unsynced_count; i++)
    if (v->unsynced[i] == index)
      v->unsynced[i--] = v->unsynced[--v->unsynced_count];
  if (c->fd >= 0)
    close(c->fd);
  c->fd = -1;
  pthread_mutex_unlock(&v->lock);
}

static int open_tail(const struct volume *v, uint64_t index, int flags) {
  char name[NAME_BYTES];
  name_of(name, index, "tail");
  return openat(v->dir, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

static int remove_tail(struct volume *v, uint64_t index) {
  char name[NAME_BYTES];
  name_of(name, index, "tail");
  close_tail(v, index);
  atomic_store(&v->names_changed, 1);
  return unlinkat(v->dir, name, 0) && errno != ENOENT ? failed("removing a tail") : 0;
}

static int drop_object(struct volume *v, uint64_t index) {
  char name[NAME_BYTES], old[NAME_BYTES];
  name_of(name, index, "bp");
  name_of(old, index, "bp.old");
  forget_reader(v, index);
  int answer = remove_object(v->dir, old);
  if (!answer && renameat(v->dir, name, v->dir, old) && errno != ENOENT)
    answer = failed("renaming an object");
  /* Durable before its files go: half an object must not have its name. */
  if (!answer && fsync(v->dir))
    answer = failed("fsync of the directory of objects");
  return answer ? answer : remove_object(v->dir, old);
}

/* A tail that is whole becomes an object. */
static int make_object(struct volume *v, uint64_t index) {
  struct chunk *c = &v->chunks[index];
  int fd = c->fd >= 0 ? c->fd : open_tail(v, index, O_RDONLY);
  if (fd < 0)
    return failed("opening a tail");
  int answer = write_object(&v->shape, index, fd);
  if (fd != c->fd)
    close(fd);
  if (answer)
    return answer;
  c->form = OBJECT;
  free(c->parts);
  c->parts = NULL;
  c->full = 0;
  return remove_tail(v, index);
}

static int copy_out(struct volume *v, uint64_t index, int fd, const struct part *unneeded) {
  char *buffer = malloc(UNIT);
  int answer = buffer ? 0 : say(-ENOMEM, "out of memory");
  for (uint64_t at = 0; !answer && at < v->shape.chunk; at += UNIT) {
    if (unneeded && unneeded[at / UNIT].from)
      continue;
    answer = with_reader(v, index, buffer, UNIT, at);
    if (!answer)
      answer = all(fd, NULL, buffer, UNIT, at);
  }
  free(buffer);
  return !answer && fsync(fd) ? failed("fsync") : answer;
}

/* What is in an object goes to a tail, as durable as it was. It counts as not written: the chunk
 * becomes an object again when all of it was written anew, or at the next start. */
static int unmake_object(struct volume *v, uint64_t index) {
  struct chunk *c = &v->chunks[index];
  char part[NAME_BYTES], name[NAME_BYTES];
  name_of(part, index, "tail.part");
  name_of(name, index, "tail");
  struct part *unneeded = c->parts;
  uint32_t unneeded_count = c->full;
  c->parts = NULL;
  int answer = fresh_parts(v, c);
  int fd = openat(v->dir, part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    answer = failed("creating a tail");
  if (!answer)
    answer = copy_out(v, index, fd, unneeded);
  if (fd >= 0)
    close(fd);
  if (!answer && renameat(v->dir, part, v->dir, name))
    answer = failed("naming a tail");
  if (!answer)
    answer = drop_object(v, index);
  if (answer) {
    free(c->parts);
    c->parts = unneeded;
    c->full = unneeded_count;
    return answer;
  }
  free(unneeded);
  c->form = TAIL;
  return 0;
}

static int make_tail(struct volume *v, uint64_t index) {
  struct chunk *c = &v->chunks[index];
  if (c->form == OBJECT)
    return unmake_object(v, index);
  int answer = index ? fresh_parts(v, c) : 0;
  if (answer)
    return answer;
  int fd = open_tail(v, index, O_RDWR | O_CREAT);
  if (fd < 0)
    return failed("creating a tail");
  close(fd);
  atomic_store(&v->names_changed, 1);
  c->form = TAIL;
  return 0;
}

/* Makes an object of a chunk, unless it is no whole tail any more. */
static int finish(struct volume *v, uint64_t index) {
  struct chunk *c = &v->chunks[index];
  pthread_rwlock_wrlock(&c->lock);
  int whole = c->form == TAIL && c->full == v->shape.chunk / UNIT;
  int answer = whole ? make_object(v, index) : 0;
  pthread_rwlock_unlock(&c->lock);
  return answer;
}

/* ---- closes that are late ---- */

static void *close_late(void *argument) {
  struct volume *v = argument;
  pthread_mutex_lock(&v->lock);
  for (;;) {
    while (!v->late_count && !v->ends)
      pthread_cond_wait(&v->changed, &v->lock);
    if (!v->late_count)
      break;
    uint64_t index = v->late[0];
    pthread_mutex_unlock(&v->lock);
    int answer = finish(v, index);
    pthread_mutex_lock(&v->lock);
    v->late[0] = v->late[--v->late_count];
    if (answer)
      v->late_error = answer;
  }
  pthread_mutex_unlock(&v->lock);
  return NULL;
}

/* Whether the closer takes it. */
static int closes_late(struct volume *v, uint64_t index) {
  if (!v->late_close)
    return 0;
  pthread_mutex_lock(&v->lock);
  int takes = v->late_count < LATE_MAX;
  if (takes)
    v->late[v->late_count++] = index;
  pthread_cond_signal(&v->changed);
  pthread_mutex_unlock(&v->lock);
  return takes;
}

/* What a late close met; the bytes are in its tail. */
static int late_error(struct volume *v) {
  pthread_mutex_lock(&v->lock);
  int answer = v->late_error;
  v->late_error = 0;
  pthread_mutex_unlock(&v->lock);
  return answer ? say(answer, "an earlier chunk could not be made an object") : 0;
}

#include "adios/volume.h"

/* ---- the table ---- */

/* Chunk, place in it, and bytes there of a range. */
static uint64_t locate(const struct volume *v, uint64_t offset, uint64_t *at, uint64_t *count) {
  uint64_t index = offset < HEAD ? 0 : 1 + (offset - HEAD) / v->shape.chunk;
  *at = index ? (offset - HEAD) % v->shape.chunk : offset;
  uint64_t left = bytes_of(v, index) - *at;
  *count = *count < left ? *count : left;
  return index;
}

static int64_t read_at(void *file, void *buffer, uint64_t count, uint64_t offset) {
  struct volume *v = file;
  uint64_t at, index = locate(v, offset, &at, &count);
  if (index >= v->count)
    return 0;
  struct chunk *c = &v->chunks[index];
  int answer = 0;
  pthread_rwlock_rdlock(&c->lock);
  if (c->form == EMPTY) {
    memset(buffer, 0, count);
  } else if (c->form == OBJECT) {
    answer = with_reader(v, index, buffer, count, at);
  } else {
    int fd = open_tail(v, index, O_RDONLY);
    answer = fd < 0 ? failed("opening a tail") : all(fd, buffer, NULL, count, at);
    if (fd >= 0)
      close(fd);
  }
  pthread_rwlock_unlock(&c->lock);
  return answer ? answer : (int64_t)count;
}

/* The descriptor of a tail, which stays open until a sync: it hears of errors. */
static int unsynced(struct volume *v, uint64_t index) {
  struct chunk *c = &v->chunks[index];
  pthread_mutex_lock(&v->lock);
  if (c->fd < 0 && (c->fd = open_tail(v, index, O_RDWR)) >= 0)
    v->unsynced[v->unsynced_count++] = (uint32_t)index;
  int fd = c->fd >= 0 ? c->fd : failed("opening a tail");
  pthread_mutex_unlock(&v->lock);
  return fd;
}

static int64_t write_at(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  struct volume *v = file;
  uint64_t at, index = locate(v, offset, &at, &count);
  if (index >= v->count)
    return say(-EINVAL, "a write behind the end of the device");
  if (atomic_load(&v->broken))
    return say(-EIO, "an earlier sync failed: start the volume again");
  int answer = late_error(v);
  if (!answer)
    answer = sync_some(v, UNSYNCED_MAX);
  struct chunk *c = &v->chunks[index];
  int whole = 0;
  for (int written = 0; !answer && !written;) {
    pthread_rwlock_rdlock(&c->lock);
    if (c->form == TAIL) {
      int fd = unsynced(v, index);
      answer = fd < 0 ? fd : all(fd, NULL, buffer, count, at);
      pthread_mutex_lock(&v->lock);
      whole = !answer && note(v, index, at, count);
      pthread_mutex_unlock(&v->lock);
      written = 1;
    }
    pthread_rwlock_unlock(&c->lock);
    if (written)
      break;
    pthread_rwlock_wrlock(&c->lock);
    if (c->form != TAIL)
      answer = make_tail(v, index);
    pthread_rwlock_unlock(&c->lock);
  }
  if (whole && !closes_late(v, index))
    answer = finish(v, index);
  return answer ? answer : (int64_t)count;
}

static int make_durable(void *file, int what) {
  (void)what;
  struct volume *v = file;
  int answer = sync_some(v, 0);
  if (!answer)
    answer = late_error(v);
  return answer;
}

static int trim(void *file, uint64_t offset, uint64_t count) {
  struct volume *v = file;
  while (count > 0) {
    uint64_t at, n = count, index = locate(v, offset, &at, &n);
    if (index >= v->count)
      return 0;
    struct chunk *c = &v->chunks[index];
    pthread_rwlock_wrlock(&c->lock);
    int answer = index ? give_up(v, index, at, n) : 0;
    pthread_rwlock_unlock(&c->lock);
    if (answer)
      return answer;
    offset += n;
    count -= n;
  }
  return 0;
}

static int cut(void *file, uint64_t length) {
  (void)file;
  (void)length;
  return say(-ENOTSUP, "a device has its size");
}

static int64_t length(void *file) {
  const struct volume *v = file;
  return (int64_t)(HEAD + (v->count - 1) * v->shape.chunk);
}

static int open_file(void *volume, const char *path, int mode, void **file) {
  (void)path;
  (void)mode;
  *file = volume;
  return 0;
}

static void close_file(void *file) { (void)file; }

static const char *last_error(void) { return why[0] ? why : NULL; }

static const struct hayloft_engine table = {
    .abi = HAYLOFT_ENGINE_ABI,
    .size = sizeof table,
    .name = "adios",
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
