/* The engine `nbd`: blocks on a network block device, over libnbd (1.14 or later).
 * SPDX-License-Identifier: Apache-2.0
 *
 *     cc -O2 -Wall -shared -fPIC -o nbd.so nbd.c -lnbd -lpthread
 *     hayloft.io.engine./data/1 = plugin:/path/of/nbd.so nbd://server/export timeout=30
 *
 * Options behind the URI (nbd://, nbds://, nbd+unix:///export?socket=/path, nbds+unix://):
 *     connections=N  1 to 16; 4, or 1 where the server does not promise that a flush on one
 *                    connection covers the others
 *     timeout=S      seconds without an answer, after which the connection is given up; 30
 *     fua=yes        every write is on stable storage when it completes; syncs then cost nothing
 *
 * A server that went away may have lost what was not flushed: the next sync fails then, also when
 * the server is back. */
#define _GNU_SOURCE
#include "hayloft_engine.h"

#include <errno.h>
#include <libnbd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONNECTIONS_MAX 16
#define REQUEST_MAX (1u << 20)  /* bytes in one request */
#define IN_FLIGHT 4             /* requests of one call */

struct connection {
  pthread_mutex_t lock;
  struct nbd_handle *nbd; /* NULL: not connected */
};

struct device {
  char *uri;
  unsigned connections;
  unsigned timeout; /* seconds */
  int fua;
  int64_t size;
  uint64_t request_max, transfer_max;
  int can_trim;
  atomic_uint next;
  pthread_mutex_t lock; /* of the four below */
  uint64_t gone;        /* connections that were lost */
  uint64_t written;     /* writes that were answered */
  uint64_t flushed;     /* of those, that a flush covered */
  int lost;             /* a server went away that may not have kept what was written */
  struct connection each[CONNECTIONS_MAX];
};

static _Thread_local char why[400];

static int say(int answer, const char *text) {
  snprintf(why, sizeof why, "%s", text);
  return answer;
}

static int said_by_nbd(const char *doing) {
  const char *words = nbd_get_error();
  snprintf(why, sizeof why, "%s: %s", doing, words ? words : "no reason given");
  return -EIO;
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits for the server until `deadline`. 0: something happened. */
static int wait_until(struct nbd_handle *nbd, int64_t deadline) {
  int64_t left = deadline - now_ms();
  if (left <= 0)
    return say(-ETIMEDOUT, "the server gives no answer in time");
  int happened = nbd_poll(nbd, (int)left);
  if (happened < 0)
    return said_by_nbd("the connection");
  return happened ? 0 : say(-ETIMEDOUT, "the server gives no answer in time");
}

/* What an export must be. */
static int check(const struct device *device, struct nbd_handle *nbd) {
  if (nbd_is_read_only(nbd) != 0)
    return say(-EROFS, "the export is read-only");
  if (nbd_can_flush(nbd) != 1)
    return say(-EINVAL, "the server has no FLUSH, so nothing on it is ever safe");
  if (device->fua && nbd_can_fua(nbd) != 1)
    return say(-EINVAL, "the server has no FUA: leave out fua=yes");
  if (nbd_get_block_size(nbd, LIBNBD_SIZE_MINIMUM) > 1)
    return say(-EINVAL, "the server takes whole blocks only, which this engine does not do yet");
  if (device->size && nbd_get_size(nbd) != device->size)
    return say(-EIO, "the export has another size than before: it is another device");
  if (device->connections > 1 && nbd_can_multi_conn(nbd) != 1)
    return say(-EIO, "the server has lost CAN_MULTI_CONN: a flush would cover one connection");
  return 0;
}

static int connect_to(const struct device *device, struct nbd_handle **out) {
  struct nbd_handle *nbd = nbd_create();
  if (!nbd)
    return said_by_nbd("libnbd");
  int64_t deadline = now_ms() + (int64_t)device->timeout * 1000;
  int answer = 0;
  if (nbd_set_uri_allow_local_file(nbd, true) || nbd_aio_connect_uri(nbd, device->uri))
    answer = said_by_nbd("connecting");
  while (!answer && !nbd_aio_is_ready(nbd)) {
    if (nbd_aio_is_dead(nbd) || nbd_aio_is_closed(nbd))
      answer = said_by_nbd("connecting");
    else
      answer = wait_until(nbd, deadline);
  }
  if (!answer)
    answer = check(device, nbd);
  if (answer) {
    nbd_close(nbd);
    return answer;
  }
  *out = nbd;
  return 0;
}

/* The server may have lost what it had not flushed. The connections that wait go too: they are of
 * the same server, and each would look like another loss later. */
static void drop(struct device *device, struct connection *c) {
  nbd_close(c->nbd);
  c->nbd = NULL;
  pthread_mutex_lock(&device->lock);
  device->gone++;
  if (device->written > device->flushed)
    device->lost = 1;
  pthread_mutex_unlock(&device->lock);
  for (unsigned i = 0; i < device->connections; i++) {
    struct connection *other = &device->each[i];
    if (other != c && pthread_mutex_trylock(&other->lock) == 0) {
      if (other->nbd)
        nbd_close(other->nbd);
      other->nbd = NULL;
      pthread_mutex_unlock(&other->lock);
    }
  }
}

/* Whether the server has closed the connection. */
static int is_closed(struct nbd_handle *nbd) {
  return nbd_poll(nbd, 0) < 0 || !nbd_aio_is_ready(nbd);
}

/* Drops connections of a server that went away, before another is made to its successor: what is
 * written there is not lost. */
static void drop_closed(struct device *device, const struct connection *own) {
  for (unsigned i = 0; i < device->connections; i++) {
    struct connection *other = &device->each[i];
    if (other == own || pthread_mutex_trylock(&other->lock) != 0)
      continue;
    int closed = other->nbd && is_closed(other->nbd);
    if (closed)
      drop(device, other);
    pthread_mutex_unlock(&other->lock);
    if (closed)
      return; /* the others went with it */
  }
}

/* A connection of one's own until it is unlocked. */
static int take(struct device *device, struct connection **out) {
  unsigned first = atomic_fetch_add(&device->next, 1);
  struct connection *c = NULL;
  for (unsigned i = 0; !c && i < device->connections; i++) {
    struct connection *at = &device->each[(first + i) % device->connections];
    if (pthread_mutex_trylock(&at->lock) == 0)
      c = at;
  }
  if (!c) {
    c = &device->each[first % device->connections];
    pthread_mutex_lock(&c->lock);
  }
  if (c->nbd && is_closed(c->nbd))
    drop(device, c);
  if (!c->nbd) {
    drop_closed(device, c);
    int answer = connect_to(device, &c->nbd);
    if (answer) {
      /* Whatever is wrong with the export now: it cannot be used. */
      pthread_mutex_unlock(&c->lock);
      return answer == -ETIMEDOUT ? answer : -EIO;
    }
  }
  *out = c;
  return 0;
}

/* Parts of one transfer, on their way together: the server reads or writes one while another is on
 * the wire. */
struct requests {
  int64_t cookie[IN_FLIGHT];
  unsigned count;
};

static struct requests one(int64_t cookie) {
  struct requests requests = {.cookie = {cookie}, .count = 1};
  return requests;
}

/* Waits for all of them, and gives the connection back. -ENOTCONN: it was closed, and the requests
 * may be sent again on a new one. */
static int finish(struct device *device, struct connection *c, struct requests requests) {
  int64_t deadline = now_ms() + (int64_t)device->timeout * 1000;
  int refused = 0, given_up = 0;
  unsigned done = 0;
  while (done < requests.count && !given_up) {
    int64_t cookie = requests.cookie[done];
    int ended = cookie < 0 ? -1 : nbd_aio_command_completed(c->nbd, (uint64_t)cookie);
    if (ended == 0) {
      given_up = wait_until(c->nbd, deadline);
      continue;
    }
    if (ended < 0 && !refused) {
      int code = nbd_get_errno();
      said_by_nbd("the server");
      refused = code > 0 ? -code : -EIO;
    }
    done++;
  }
  /* After an answer, also one that refuses, the connection is as good as before. Otherwise no
   * request may stay on it: its buffer is the node's again. */
  int closed = refused && !given_up && !nbd_aio_is_ready(c->nbd);
  if (given_up || closed)
    drop(device, c);
  pthread_mutex_unlock(&c->lock);
  if (closed)
    return -ENOTCONN;
  return given_up ? given_up : refused;
}

/* What the node hears: errors of sockets are those of a lost device. */
static int ended(int answer) {
  switch (answer) {
  case 0: case -ENOSPC: case -EIO: case -EROFS: case -ENODEV: case -EINVAL: return answer;
  case -EPERM: return -EROFS;
  default: return -EIO;
  }
}

/* Reads "name=number" from `word` into *value. */
static int number(const char *word, const char *name, unsigned most, unsigned *value) {
  size_t len = strlen(name);
  if (strncmp(word, name, len) != 0)
    return 0;
  char *end;
  unsigned long n = strtoul(word + len, &end, 10);
  if (end == word + len || *end || n < 1 || n > most)
    return 0;
  *value = (unsigned)n;
  return 1;
}

static int read_options(struct device *device, char *text, unsigned *connections) {
  char *rest = NULL;
  char *word = strtok_r(text, " \t", &rest);
  if (!word || strncmp(word, "nbd", 3) != 0)
    return say(-EINVAL, "name the export behind the plug-in: nbd://server/export");
  device->uri = strdup(word);
  if (!device->uri)
    return say(-ENOMEM, "out of memory");
  while ((word = strtok_r(NULL, " \t", &rest))) {
    if (strcmp(word, "fua=yes") == 0)
      device->fua = 1;
    else if (!number(word, "connections=", CONNECTIONS_MAX, connections) &&
             !number(word, "timeout=", 3600, &device->timeout))
      return say(-EINVAL, "the options are connections=1..16, timeout=1..3600 and fua=yes");
  }
  return 0;
}

static void close_volume(void *volume) {
  struct device *device = volume;
  for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
    if (device->each[i].nbd) {
      nbd_shutdown(device->each[i].nbd, 0);
      nbd_close(device->each[i].nbd);
    }
  }
  free(device->uri);
  free(device);
}

static int open_volume(const char *directory, const char *options, void **out) {
  (void)directory;
  why[0] = 0;
  struct device *device = calloc(1, sizeof *device);
  char *text = strdup(options);
  if (!device || !text) {
    free(device);
    free(text);
    return say(-ENOMEM, "out of memory");
  }
  pthread_mutex_init(&device->lock, NULL);
  for (unsigned i = 0; i < CONNECTIONS_MAX; i++)
    pthread_mutex_init(&device->each[i].lock, NULL);
  device->timeout = 30;
  unsigned connections = 0;
  int answer = read_options(device, text, &connections);
  free(text);
  struct nbd_handle *first = NULL;
  if (!answer)
    answer = connect_to(device, &first);
  if (answer) {
    close_volume(device);
    return answer;
  }
  device->each[0].nbd = first;
  device->size = nbd_get_size(first);
  device->can_trim = nbd_can_trim(first) == 1;
  int64_t most = nbd_get_block_size(first, LIBNBD_SIZE_MAXIMUM);
  device->request_max = most > 0 && most < REQUEST_MAX ? (uint64_t)most : REQUEST_MAX;
  device->transfer_max = device->request_max * IN_FLIGHT;
  /* A flush must cover the writes of all connections, and a read see them. */
  device->connections = nbd_can_multi_conn(first) == 1 ? (connections ? connections : 4) : 1;
  /* An earlier process may have left writes: the first sync flushes in any case. */
  device->written = 1;
  *out = device;
  return 0;
}

static int open_file(void *volume, const char *path, int mode, void **file) {
  (void)path;
  (void)mode;
  *file = volume;
  return 0;
}

static void close_file(void *file) { (void)file; }

/* A connection that a restarted server closed is found out by its next request: every connection
 * may be one, and the last try is on a new one. */
static int again(const struct device *device, int answer, unsigned *tries) {
  return answer == -ENOTCONN && ++*tries <= device->connections;
}

/* Bytes of the next request, when `left` are to go. */
static uint64_t part(const struct device *device, uint64_t left) {
  return left < device->request_max ? left : device->request_max;
}

static uint64_t connections_gone(struct device *device) {
  pthread_mutex_lock(&device->lock);
  uint64_t gone = device->gone;
  pthread_mutex_unlock(&device->lock);
  return gone;
}

/* Counts a write that was answered. Not one during which a connection was lost: the server that
 * answered may be the one that went away, so it is sent again. */
static int count_write(struct device *device, uint64_t gone) {
  if (device->fua)
    return 1;
  pthread_mutex_lock(&device->lock);
  int counts = device->gone == gone;
  device->written += (uint64_t)counts;
  pthread_mutex_unlock(&device->lock);
  return counts;
}

/* Reads into `into`, or writes `from`, whichever there is. */
static int64_t transfer(struct device *device, void *into, const void *from, uint64_t count,
                        uint64_t offset) {
  if (count > device->transfer_max)
    count = device->transfer_max;
  uint32_t flags = device->fua ? LIBNBD_CMD_FLAG_FUA : 0;
  unsigned tries = 0;
  int answer;
  do {
    uint64_t gone = connections_gone(device);
    struct connection *c;
    answer = take(device, &c);
    if (!answer) {
      struct requests requests = {.count = 0};
      for (uint64_t at = 0; at < count; at += device->request_max) {
        uint64_t n = part(device, count - at);
        requests.cookie[requests.count++] =
            into ? nbd_aio_pread(c->nbd, (char *)into + at, n, offset + at, NBD_NULL_COMPLETION, 0)
                 : nbd_aio_pwrite(c->nbd, (const char *)from + at, n, offset + at,
                                  NBD_NULL_COMPLETION, flags);
      }
      answer = finish(device, c, requests);
    }
    if (!answer && from && !count_write(device, gone))
      answer = -ENOTCONN;
  } while (again(device, answer, &tries));
  return answer ? ended(answer) : (int64_t)count;
}

static int64_t read_at(void *file, void *buffer, uint64_t count, uint64_t offset) {
  return transfer(file, buffer, NULL, count, offset);
}

static int64_t write_at(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  return transfer(file, NULL, buffer, count, offset);
}

static int cut(void *file, uint64_t length) {
  (void)file;
  (void)length;
  return say(-ENOTSUP, "a device has its size");
}

/* Whether something was lost since the last call. *covered and *clean: what a flush from here on
 * covers, and that there is nothing for it. */
static int was_lost(struct device *device, uint64_t *covered, int *clean) {
  pthread_mutex_lock(&device->lock);
  int lost = device->lost;
  device->lost = 0;
  if (lost)
    device->flushed = device->written;
  *covered = device->written;
  *clean = device->written == device->flushed;
  pthread_mutex_unlock(&device->lock);
  return lost;
}

static int make_durable(void *file, int what) {
  (void)what;
  struct device *device = file;
  const char *gone = "the server went away with writes that it had not flushed: they may be lost";
  uint64_t covered, unused;
  int clean;
  if (was_lost(device, &covered, &clean))
    return say(-EIO, gone);
  if (clean)
    return 0;
  struct connection *c;
  int answer = take(device, &c);
  if (!answer)
    answer = finish(device, c, one(nbd_aio_flush(c->nbd, NBD_NULL_COMPLETION, 0)));
  /* Lost while this flush was under way, on another connection. */
  if (was_lost(device, &unused, &clean) && !answer)
    answer = say(-EIO, gone);
  if (answer)
    return ended(answer);
  pthread_mutex_lock(&device->lock);
  if (covered > device->flushed)
    device->flushed = covered;
  pthread_mutex_unlock(&device->lock);
  return 0;
}

static int64_t length(void *file) {
  const struct device *device = file;
  return device->size;
}

static int trim(void *file, uint64_t offset, uint64_t count) {
  struct device *device = file;
  while (device->can_trim && count > 0) {
    uint64_t n = count < (1u << 30) ? count : (1u << 30);
    struct connection *c;
    int answer = take(device, &c);
    if (!answer)
      answer = finish(device, c, one(nbd_aio_trim(c->nbd, n, offset, NBD_NULL_COMPLETION, 0)));
    /* Without an answer it may still be carried out; a refusal is an answer. */
    if (answer == -ENOTCONN || answer == -ETIMEDOUT)
      return ended(answer);
    if (answer)
      return say(-EOPNOTSUPP, "the server does not trim");
    offset += n;
    count -= n;
  }
  return 0;
}

static const char *last_error(void) { return why[0] ? why : NULL; }

static const struct hayloft_engine table = {
    .abi = HAYLOFT_ENGINE_ABI,
    .size = sizeof table,
    .name = "nbd",
    .threads = HAYLOFT_ANY_CALLS,
    .capabilities = HAYLOFT_DEVICE | HAYLOFT_OUTLIVES_PROCESS,
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
