/* Volumes of the engine `adios`: options, the directory of objects at a start, syncs and trims.
 * Part of adios.c. SPDX-License-Identifier: Apache-2.0 */
#ifndef HAYLOFT_ADIOS_VOLUME_H
#define HAYLOFT_ADIOS_VOLUME_H

/* ---- syncs and trims ---- */

/* Makes tails durable until at most `keep` are not; with 0 all that was written and renamed. */
static int sync_some(struct volume *v, uint32_t keep) {
  pthread_mutex_lock(&v->lock);
  int enough = keep && v->unsynced_count <= keep;
  pthread_mutex_unlock(&v->lock);
  if (enough)
    return 0;
  int answer = 0;
  pthread_mutex_lock(&v->sync_lock);
  /* What is added later is of later writes; what is gone by then was synced. */
  pthread_mutex_lock(&v->lock);
  uint32_t count = v->unsynced_count > keep ? v->unsynced_count - keep : 0;
  uint32_t *these = malloc((count + 1) * sizeof *these);
  if (these)
    memcpy(these, v->unsynced, count * sizeof *these);
  pthread_mutex_unlock(&v->lock);
  if (!these)
    answer = say(-ENOMEM, "out of memory");
  for (uint32_t i = 0; !answer && i < count; i++) {
    struct chunk *c = &v->chunks[these[i]];
    pthread_rwlock_wrlock(&c->lock);
    if (c->fd >= 0 && fsync(c->fd))
      answer = failed("fsync of a tail");
    if (!answer)
      close_tail(v, these[i]);
    pthread_rwlock_unlock(&c->lock);
  }
  free(these);
  /* An earlier process may have left what is not durable: the first sync covers it. */
  if (!answer && !keep && atomic_exchange(&v->inherited, 0) && syncfs(v->dir))
    answer = failed("syncfs of the directory of objects");
  if (!answer && atomic_exchange(&v->names_changed, 0) && fsync(v->dir))
    answer = failed("fsync of the directory of objects");
  if (answer)
    atomic_store(&v->broken, 1);
  else if (atomic_load(&v->broken))
    answer = say(-EIO, "an earlier sync failed: start the volume again");
  pthread_mutex_unlock(&v->sync_lock);
  return answer;
}

/* Nothing in the range is needed. The caller holds the chunk's lock for writing. */
static int give_up(struct volume *v, uint64_t index, uint64_t at, uint64_t count) {
  struct chunk *c = &v->chunks[index];
  const uint32_t units = (uint32_t)(v->shape.chunk / UNIT);
  int answer = 0, all_of_it = count == v->shape.chunk;
  if (c->form == EMPTY)
    return 0;
  if (c->form == OBJECT && !c->parts && !all_of_it)
    answer = fresh_parts(v, c);
  if (answer)
    return answer;
  uint64_t first = (at + UNIT - 1) / UNIT, end = (at + count) / UNIT;
  for (uint64_t unit = first; c->parts && unit < end; unit++) {
    struct part *p = &c->parts[unit];
    if (c->form == OBJECT) {
      c->full += !p->from;
      p->from = 1;
    } else {
      c->full -= p->from == 0 && p->to == UNIT;
      p->from = p->to = 0;
    }
  }
  if (c->form == TAIL && !all_of_it) {
    int fd = open_tail(v, index, O_RDWR);
    if (fd < 0)
      return failed("opening a tail");
    int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    if (fallocate(fd, mode, (off_t)at, (off_t)count) && errno != EOPNOTSUPP)
      answer = failed("punching a tail");
    close(fd);
    return answer;
  }
  if (c->form == OBJECT && !all_of_it && c->full < units)
    return 0;
  answer = c->form == OBJECT ? drop_object(v, index) : remove_tail(v, index);
  if (!answer) {
    c->form = EMPTY;
    free(c->parts);
    c->parts = NULL;
    c->full = 0;
  }
  return answer;
}

/* ---- options ---- */

/* Reads "name=size" from `word` into *value. */
static int size_option(const char *word, const char *name, uint64_t least, uint64_t most,
                       uint64_t *value) {
  size_t len = strlen(name);
  if (strncmp(word, name, len) != 0)
    return 0;
  char *end;
  errno = 0;
  unsigned long long n = strtoull(word + len, &end, 10);
  static const char suffixes[] = "KMGT";
  const char *suffix = *end ? strchr(suffixes, *end) : NULL;
  int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
  if (errno || end == word + len || end[suffix ? 1 : 0] || n > most >> shift || n << shift < least)
    return 0;
  *value = n << shift;
  return 1;
}

struct options {
  char *library, *objects;
  uint64_t size, chunk, step;
  int late_close, direct;
};

static int read_options(struct options *o, char *text) {
  char *rest = NULL;
  o->chunk = 32u << 20;
  for (char *word = strtok_r(text, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest)) {
    if (strncmp(word, "library=/", 9) == 0)
      o->library = word + 8;
    else if (strncmp(word, "objects=/", 9) == 0)
      o->objects = word + 8;
    else if (strcmp(word, "close=async") == 0)
      o->late_close = 1;
    else if (strcmp(word, "direct=yes") == 0)
      o->direct = 1;
    else if (strcmp(word, "close=sync") != 0 &&
             !size_option(word, "size=", HEAD, UINT64_MAX / 4, &o->size) &&
             !size_option(word, "chunk=", 1u << 20, 1u << 30, &o->chunk) &&
             !size_option(word, "step=", UNIT, 64u << 20, &o->step))
      return say(-EINVAL, "%.60s is no option: they are library=/PATH, size=, chunk=1M..1G, "
                 "step=64K..64M, objects=/DIR, close=sync|async and direct=yes", word);
  }
  if (!o->library)
    return say(-EINVAL, "library=/path/of/libadios2_c.so is missing (scripts/fetch-adios)");
  if (!o->step)
    o->step = o->chunk % (4u << 20) ? UNIT : 4u << 20;
  if (o->chunk % UNIT || o->step % UNIT || o->chunk % o->step)
    return say(-EINVAL, "chunk= must be a multiple of step=, and both of 64K");
  if (o->chunk / o->step > STEPS_MAX)
    return say(-EINVAL, "chunk= is more than %u times step=", STEPS_MAX);
  if (o->size < HEAD + o->chunk || (o->size - HEAD) / o->chunk >= CHUNKS_MAX)
    return say(-EINVAL, "size= must be 1 to %u chunks and 1M", CHUNKS_MAX - 1);
  return 0;
}

/* ---- the directory of objects ---- */

static int lock_directory(struct volume *v) {
  v->lock_fd = openat(v->dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (v->lock_fd < 0)
    return failed("creating the lock in the directory of objects");
  for (int tries = 0; flock(v->lock_fd, LOCK_EX | LOCK_NB); tries++) {
    if (errno != EWOULDBLOCK)
      return failed("locking the directory of objects");
    if (tries == LOCK_WITHIN_S * 50)
      return say(-EBUSY, "another volume has the directory of objects %s", v->directory);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  }
  return 0;
}

/* The directory keeps the sizes that its objects have. */
static int check_layout(struct volume *v) {
  char is[SUM_BYTES] = "", wanted[SUM_BYTES];
  snprintf(wanted, sizeof wanted, "hayloft-adios 1\nchunk=%llu step=%llu\n",
           (unsigned long long)v->shape.chunk, (unsigned long long)v->shape.step);
  int fd = openat(v->dir, "layout", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd >= 0) {
    int unread = read(fd, is, sizeof is - 1) < 0;
    close(fd);
    if (unread)
      return failed("reading the layout of the directory of objects");
    char *line = strchr(is, '\n');
    return strcmp(is, wanted) ? say(-EINVAL, "the objects in %s have another layout: %s",
                                    v->directory, line ? line + 1 : "it cannot be read")
                              : 0;
  }
  fd = openat(v->dir, "layout.part", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  int answer = fd < 0 ? failed("creating a layout") : all(fd, NULL, wanted, strlen(wanted), 0);
  if (!answer && (fsync(fd) || renameat(v->dir, "layout.part", v->dir, "layout") || fsync(v->dir)))
    answer = failed("keeping a layout");
  if (fd >= 0)
    close(fd);
  return answer;
}

static int ends_in(const char *name, const char *suffix) {
  size_t n = strlen(name), s = strlen(suffix);
  return n >= s && strcmp(name + n - s, suffix) == 0;
}

/* Notes one name; removes what a kill left half done. */
static int adopt(struct volume *v, const char *name) {
  if (ends_in(name, ".tail.part"))
    return unlinkat(v->dir, name, 0) ? failed("removing half a tail") : 0;
  if (ends_in(name, ".bp.part") || ends_in(name, ".bp.old"))
    return remove_object(v->dir, name);
  char *end;
  unsigned long long index = strtoull(name, &end, 10);
  int object = strcmp(end, ".bp") == 0;
  if (end == name || (!object && strcmp(end, ".tail") != 0))
    return 0;
  if (index >= v->count)
    return say(-EINVAL, "%s is behind the end of the device: give size= its size back", name);
  /* Where there are both, the object wins. */
  if (object || v->chunks[index].form == EMPTY)
    v->chunks[index].form = object ? OBJECT : TAIL;
  return 0;
}

/* Finds out what of a tail was written, as far as the file system knows. */
static int look_at_tail(struct volume *v, uint64_t index) {
  struct chunk *c = &v->chunks[index];
  int fd = index ? open_tail(v, index, O_RDONLY) : -1;
  if (!index)
    return 0;
  int answer = fd < 0 ? failed("opening a tail") : fresh_parts(v, c);
  for (off_t at = 0; !answer && at < (off_t)v->shape.chunk;) {
    off_t data = lseek(fd, at, SEEK_DATA), hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
    if (hole < 0)
      break;
    uint64_t end = (uint64_t)hole < v->shape.chunk ? (uint64_t)hole : v->shape.chunk;
    if ((uint64_t)data < end)
      note(v, index, (uint64_t)data, end - (uint64_t)data);
    at = hole;
  }
  if (fd >= 0)
    close(fd);
  return answer;
}

static int look_around(struct volume *v) {
  int fd = openat(v->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *list = fd < 0 ? NULL : fdopendir(fd);
  if (!list)
    return failed("listing the directory of objects");
  int answer = 0;
  struct dirent *entry;
  while (!answer && (entry = readdir(list)))
    answer = adopt(v, entry->d_name);
  closedir(list);
  for (uint64_t index = 0; !answer && index < v->count; index++) {
    char name[NAME_BYTES];
    name_of(name, index, "tail");
    if (v->chunks[index].form == OBJECT && unlinkat(v->dir, name, 0) && errno != ENOENT)
      answer = failed("removing a tail");
    if (v->chunks[index].form == TAIL)
      answer = look_at_tail(v, index);
    /* What a kill interrupted; without room it stays a tail. */
    if (!answer && v->chunks[index].form == TAIL)
      finish(v, index);
  }
  return answer;
}

/* ---- volumes ---- */

static void close_volume(void *volume) {
  struct volume *v = volume;
  if (v->late_close) {
    pthread_mutex_lock(&v->lock);
    v->ends = 1;
    pthread_cond_signal(&v->changed);
    pthread_mutex_unlock(&v->lock);
    pthread_join(v->closer, NULL);
  }
  for (int i = 0; i < READERS; i++)
    close_reader(&v->readers[i]);
  for (uint64_t i = 0; v->chunks && i < v->count; i++) {
    if (v->chunks[i].fd >= 0)
      close(v->chunks[i].fd);
    free(v->chunks[i].parts);
  }
  if (v->dir >= 0)
    close(v->dir);
  if (v->lock_fd >= 0)
    close(v->lock_fd);
  free(v->chunks);
  free(v->unsynced);
  free(v->directory);
  free(v);
}

static struct volume *new_volume(const struct options *o) {
  struct volume *v = calloc(1, sizeof *v);
  if (!v)
    return NULL;
  v->dir = v->lock_fd = -1;
  v->inherited = 1;
  v->count = 1 + (o->size - HEAD) / o->chunk;
  v->shape.chunk = o->chunk;
  v->shape.step = o->step;
  /* Puts are not copied, no statistics; DirectIO is O_DIRECT. */
  v->shape.write_parameters =
      o->direct ? "StatsLevel=0,Profile=off,MinDeferredSize=1,DirectIO=true"
                : "StatsLevel=0,Profile=off,MinDeferredSize=1";
  v->chunks = calloc(v->count, sizeof *v->chunks);
  v->unsynced = calloc(v->count, sizeof *v->unsynced);
  pthread_mutex_init(&v->lock, NULL);
  pthread_mutex_init(&v->sync_lock, NULL);
  pthread_mutex_init(&v->readers_lock, NULL);
  pthread_cond_init(&v->reader_free, NULL);
  pthread_cond_init(&v->changed, NULL);
  for (int i = 0; i < READERS; i++) {
    pthread_mutex_init(&v->readers[i].lock, NULL);
    v->readers[i].index = v->readers[i].opened = UINT64_MAX;
  }
  pthread_rwlockattr_t kind;
  pthread_rwlockattr_init(&kind);
  pthread_rwlockattr_setkind_np(&kind, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
  for (uint64_t i = 0; v->chunks && i < v->count; i++) {
    v->chunks[i].fd = -1;
    pthread_rwlock_init(&v->chunks[i].lock, &kind);
  }
  pthread_rwlockattr_destroy(&kind);
  if (v->chunks && v->unsynced)
    return v;
  close_volume(v);
  return NULL;
}

static int open_directory(struct volume *v, const char *directory, const char *objects) {
  int named = objects ? asprintf(&v->directory, "%s", objects)
                      : asprintf(&v->directory, "%s/hayloft.adios", directory);
  if (named < 0)
    return say(-ENOMEM, "out of memory");
  if (mkdir(v->directory, 0700) && errno != EEXIST)
    return failed("creating the directory of objects");
  v->dir = open(v->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (v->dir < 0)
    return failed("opening the directory of objects");
  v->shape.dir = v->dir;
  return 0;
}

static int open_volume(const char *directory, const char *options, void **out) {
  why[0] = 0;
  char *text = strdup(options);
  if (!text)
    return say(-ENOMEM, "out of memory");
  struct options o = {0};
  struct volume *v = NULL;
  int answer = read_options(&o, text);
  if (!answer)
    answer = load_library(o.library);
  if (!answer && !(v = new_volume(&o)))
    answer = say(-ENOMEM, "out of memory");
  if (!answer)
    answer = open_directory(v, directory, o.objects);
  if (!answer)
    answer = lock_directory(v);
  if (!answer)
    answer = check_layout(v);
  if (!answer)
    answer = look_around(v);
  if (!answer && o.late_close) {
    v->late_close = !pthread_create(&v->closer, NULL, close_late, v);
    answer = v->late_close ? 0 : say(-EAGAIN, "no thread for late closes");
  }
  free(text);
  if (answer && v)
    close_volume(v);
  if (!answer)
    *out = v;
  return answer;
}

#endif
