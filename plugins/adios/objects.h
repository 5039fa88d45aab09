/* Objects of the engine `adios`: each a BP5 dataset of ADIOS2, in a directory `N.bp`, with the
 * bytes of one chunk as steps of a global array. SPDX-License-Identifier: Apache-2.0
 *
 * The library is opened at run time; what is declared here are the names and numbers of its C
 * interface (2.12). It is not made for several threads: every call is under one lock, but reads,
 * which are under the lock of their object and come from a dataset that is not written any more.
 *
 * A dataset that is damaged may crash the library's parser. So a file `sum` beside it has lengths
 * and CRC-32C of the metadata, and is compared before the library sees them. The content needs
 * none: the node has its checksums. */
#ifndef HAYLOFT_ADIOS_OBJECTS_H
#define HAYLOFT_ADIOS_OBJECTS_H

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NAME_BYTES 48        /* of a name in the directory of objects */
#define PATH_BYTES 96
#define METADATA_MAX (1u << 20) /* bytes of one file of a dataset's metadata */
#define STEPS_MAX 4096          /* of a dataset; each has some 200 bytes of metadata */
#define SUM_BYTES 512
#define LEFT_BEHIND_MAX 16

static _Thread_local char why[400];

__attribute__((format(printf, 2, 3))) static int say(int answer, const char *text, ...) {
  va_list list;
  va_start(list, text);
  vsnprintf(why, sizeof why, text, list);
  va_end(list);
  return answer;
}

/* What the kernel said. A missing file or directory is a damaged volume, not a missing block. */
static int failed(const char *doing) {
  int code = errno == EDQUOT ? ENOSPC : errno == ENOSPC || errno == EROFS ? errno : EIO;
  return say(-code, "%s: %s", doing, strerror(errno));
}

/* ---- the library ---- */

enum { TYPE_UINT8 = 9, CONSTANT_DIMS = 1, STEP_APPEND = 0 };
enum { MODE_WRITE = 1, MODE_DEFERRED = 4, MODE_SYNC = 5, MODE_READ_RANDOM_ACCESS = 6 };

static struct {
  void *(*init_serial)(void);
  void *(*declare_io)(void *adios, const char *name);
  int (*set_engine)(void *io, const char *type);
  int (*set_parameters)(void *io, const char *parameters);
  void *(*define_variable)(void *io, const char *name, int type, size_t dimensions,
                           const size_t *shape, const size_t *start, const size_t *count,
                           int constant);
  void *(*inquire_variable)(void *io, const char *name);
  void *(*open)(void *io, const char *name, int mode);
  int (*begin_step)(void *engine, int mode, float timeout_seconds, int *status);
  int (*put)(void *engine, void *variable, const void *data, int launch);
  int (*end_step)(void *engine);
  int (*set_step_selection)(void *variable, size_t first, size_t count);
  int (*set_selection)(void *variable, size_t dimensions, const size_t *start,
                       const size_t *count);
  int (*get)(void *engine, void *variable, void *data, int launch);
  int (*close)(void *engine);
  int (*finalize)(void *adios);
} library;

static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static char *library_path;   /* of the one that this process has */
static unsigned left_behind; /* engines that failed, with their memory and descriptors */

static int find_functions(void *handle) {
  const struct { const char *name; void *place; } wanted[] = {
      {"adios2_init_serial", &library.init_serial},
      {"adios2_declare_io", &library.declare_io},
      {"adios2_set_engine", &library.set_engine},
      {"adios2_set_parameters", &library.set_parameters},
      {"adios2_define_variable", &library.define_variable},
      {"adios2_inquire_variable", &library.inquire_variable},
      {"adios2_open", &library.open},
      {"adios2_begin_step", &library.begin_step},
      {"adios2_put", &library.put},
      {"adios2_end_step", &library.end_step},
      {"adios2_set_step_selection", &library.set_step_selection},
      {"adios2_set_selection", &library.set_selection},
      {"adios2_get", &library.get},
      {"adios2_close", &library.close},
      {"adios2_finalize", &library.finalize},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    void *function = dlsym(handle, wanted[i].name);
    if (!function)
      return say(-EINVAL, "library= has no %s: it is not the libadios2_c.so of ADIOS2 2.12",
                 wanted[i].name);
    memcpy(wanted[i].place, &function, sizeof function);
  }
  return 0;
}

/* Opens the library, once for the process. */
static int load_library(const char *path) {
  pthread_mutex_lock(&library_lock);
  int answer = 0;
  struct stat about;
  if (library_path && strcmp(library_path, path) != 0) {
    answer = say(-EINVAL, "library=%s: this process has %s already", path, library_path);
  } else if (!library_path && stat(path, &about) == 0 && about.st_mode & S_IWOTH) {
    answer = say(-EINVAL, "library=%s: every user may change it", path);
  } else if (!library_path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    answer = handle ? find_functions(handle) : say(-EINVAL, "library=: %s", dlerror());
    if (!answer && !(library_path = strdup(path)))
      answer = say(-ENOMEM, "out of memory");
    if (answer && handle)
      dlclose(handle);
  }
  pthread_mutex_unlock(&library_lock);
  return answer;
}

/* Words of the library itself are on the node's standard error. */
static int refused(const char *doing, int code) {
  return code ? say(-EIO, "ADIOS2 gives error %d when %s", code, doing) : 0;
}

/* ---- files of a dataset ---- */

/* Reads or writes all of a range; what is behind the end of the file reads as zeros. */
static int all(int fd, void *into, const void *from, size_t count, uint64_t offset) {
  for (size_t done = 0; done < count;) {
    off_t at = (off_t)(offset + done);
    ssize_t n = into ? pread(fd, (char *)into + done, count - done, at)
                     : pwrite(fd, (const char *)from + done, count - done, at);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return failed(into ? "reading a tail" : "writing a tail");
    if (n == 0 && into) {
      memset((char *)into + done, 0, count - done);
      return 0;
    }
    done += (size_t)n;
  }
  return 0;
}

/* Makes a file or directory durable. */
static int sync_at(int dir, const char *name) {
  int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return failed("opening for a sync");
  int answer = fsync(fd) ? failed("fsync") : 0;
  close(fd);
  return answer;
}

/* Removes directory `name` and the files in it. No error when there is none. */
static int remove_object(int dir, const char *name) {
  int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return errno == ENOENT ? 0 : failed("opening an object to remove");
  DIR *list = fdopendir(fd);
  if (!list) {
    close(fd);
    return say(-ENOMEM, "out of memory");
  }
  struct dirent *entry;
  while ((entry = readdir(list)))
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
      unlinkat(fd, entry->d_name, 0);
  closedir(list);
  return unlinkat(dir, name, AT_REMOVEDIR) ? failed("removing an object") : 0;
}

static uint32_t crc32c(const unsigned char *bytes, size_t count) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < count; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++)
      crc = crc >> 1 ^ (0x82f63b78u & -(crc & 1));
  }
  return ~crc;
}

static const char *const METADATA[] = {"md.idx", "md.0", "mmd.0"};
#define METADATA_FILES 3

/* Appends length and checksum of a file to `text`. */
static int describe_file(int object, const char *name, int content, char *text) {
  struct stat about;
  int fd = openat(object, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 || fstat(fd, &about)) {
    int answer = say(-EIO, "an object cannot be read: %s: %s", name, strerror(errno));
    if (fd >= 0)
      close(fd);
    return answer;
  }
  uint32_t crc = 0;
  int answer = 0;
  if (content && about.st_size > METADATA_MAX) {
    answer = say(-EIO, "an object is damaged: its %s is too large", name);
  } else if (content) {
    size_t count = (size_t)about.st_size;
    unsigned char *bytes = malloc(count + 1);
    answer = bytes ? all(fd, bytes, NULL, count, 0) : say(-ENOMEM, "out of memory");
    if (!answer)
      crc = crc32c(bytes, count);
    free(bytes);
  }
  close(fd);
  size_t used = strlen(text);
  snprintf(text + used, SUM_BYTES - used, "%s %lld %08x\n", name, (long long)about.st_size, crc);
  return answer;
}

/* What `sum` says of object number `index` with these files. */
static int describe(int object, uint64_t index, uint64_t chunk, uint64_t step, char *text) {
  snprintf(text, SUM_BYTES, "hayloft-adios 1\nobject=%llu chunk=%llu step=%llu\n",
           (unsigned long long)index, (unsigned long long)chunk, (unsigned long long)step);
  int answer = describe_file(object, "data.0", 0, text);
  for (int i = 0; !answer && i < METADATA_FILES; i++)
    answer = describe_file(object, METADATA[i], 1, text);
  return answer;
}

/* ---- writing ---- */

/* What an object is of. */
struct shape {
  int dir;              /* of all objects */
  uint64_t chunk, step; /* bytes */
  const char *write_parameters;
};

/* For the library, which takes no descriptors. A directory that was removed is not made again. */
static void path_of(char *path, const struct shape *shape, const char *name) {
  snprintf(path, PATH_BYTES, "/proc/self/fd/%d/%s", shape->dir, name);
}

static void *dataset(void *adios, const char *parameters, void **io) {
  *io = adios ? library.declare_io(adios, "hayloft") : NULL;
  if (!*io || library.set_engine(*io, "BP5") || library.set_parameters(*io, parameters))
    return NULL;
  return *io;
}

/* One step, which has the first bytes of `buffer`. */
static int put_step(void *engine, void *variable, const void *buffer) {
  int status = 0;
  pthread_mutex_lock(&library_lock);
  int answer = refused("beginning a step", library.begin_step(engine, STEP_APPEND, -1, &status));
  if (!answer)
    answer = refused("putting", library.put(engine, variable, buffer, MODE_DEFERRED));
  if (!answer)
    answer = refused("ending a step", library.end_step(engine));
  pthread_mutex_unlock(&library_lock);
  return answer;
}

/* Writes the chunk that is in `tail` as the dataset `name`, and closes it. */
static int put_all(const struct shape *shape, const char *name, int tail) {
  char path[PATH_BYTES];
  path_of(path, shape, name);
  void *buffer = NULL;
  if (posix_memalign(&buffer, 4096, shape->step))
    return say(-ENOMEM, "out of memory");
  const size_t start = 0, count = shape->step;
  void *io = NULL, *variable = NULL, *engine = NULL;
  pthread_mutex_lock(&library_lock);
  void *adios = left_behind < LEFT_BEHIND_MAX ? library.init_serial() : NULL;
  if (dataset(adios, shape->write_parameters, &io))
    variable = library.define_variable(io, "bytes", TYPE_UINT8, 1, &count, &start, &count,
                                       CONSTANT_DIMS);
  if (variable)
    engine = library.open(io, path, MODE_WRITE);
  pthread_mutex_unlock(&library_lock);
  int answer = engine ? 0 : say(-EIO, "ADIOS2 does not open %s for writing", name);
  for (uint64_t at = 0; !answer && at < shape->chunk; at += shape->step) {
    answer = all(tail, buffer, NULL, shape->step, at);
    if (!answer)
      answer = put_step(engine, variable, buffer);
  }
  pthread_mutex_lock(&library_lock);
  if (engine && !answer)
    answer = refused("closing", library.close(engine));
  /* To end an engine that failed, the library would end the process: it is left behind. */
  if (engine && answer)
    left_behind++;
  else if (adios)
    library.finalize(adios);
  pthread_mutex_unlock(&library_lock);
  free(buffer);
  return answer;
}

static int write_sum(int object, const char *text) {
  int fd = openat(object, "sum", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    return failed("creating a sum");
  int answer = all(fd, NULL, text, strlen(text), 0);
  if (!answer && fsync(fd))
    answer = failed("fsync");
  close(fd);
  return answer;
}

static int make_object_durable(const struct shape *shape, const char *name, uint64_t index) {
  int object = openat(shape->dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (object < 0)
    return failed("opening what ADIOS2 wrote");
  char text[SUM_BYTES];
  struct stat about;
  int answer = describe(object, index, shape->chunk, shape->step, text);
  if (!answer && (fstatat(object, "data.0", &about, 0) || (uint64_t)about.st_size < shape->chunk))
    answer = say(-EIO, "ADIOS2 wrote less than a chunk");
  if (!answer)
    answer = sync_at(object, "data.0");
  for (int i = 0; !answer && i < METADATA_FILES; i++)
    answer = sync_at(object, METADATA[i]);
  if (!answer)
    answer = write_sum(object, text);
  if (!answer && fsync(object))
    answer = failed("fsync");
  close(object);
  return answer;
}

/* Makes object `index` of the chunk in `tail`: durable, with its name. */
static int write_object(const struct shape *shape, uint64_t index, int tail) {
  char part[NAME_BYTES], name[NAME_BYTES];
  snprintf(part, sizeof part, "%llu.bp.part", (unsigned long long)index);
  snprintf(name, sizeof name, "%llu.bp", (unsigned long long)index);
  /* The library does not tell a full disk from a broken one, and does not get over either. */
  struct statvfs space;
  if (fstatvfs(shape->dir, &space))
    return failed("asking for the room of the directory of objects");
  if ((uint64_t)space.f_bavail * space.f_frsize < shape->chunk + METADATA_MAX)
    return say(-ENOSPC, "no room for another object");
  int answer = remove_object(shape->dir, part);
  if (!answer)
    answer = put_all(shape, part, tail);
  if (!answer)
    answer = make_object_durable(shape, part, index);
  if (!answer && renameat(shape->dir, part, shape->dir, name))
    answer = failed("naming an object");
  if (!answer && fsync(shape->dir))
    answer = failed("fsync of the directory of objects");
  if (answer) {
    char said[sizeof why];
    memcpy(said, why, sizeof said);
    remove_object(shape->dir, part);
    memcpy(why, said, sizeof said);
  }
  return answer;
}

/* ---- reading ---- */

/* An object that is open for reading. */
struct reader {
  uint64_t index; /* of the object; changes while it has no users */
  unsigned users;
  uint64_t used;        /* when, by a count of uses */
  pthread_mutex_t lock; /* of what follows, during its calls */
  uint64_t opened;      /* the object that is open */
  int data;             /* its content, when `engine` is there */
  off_t length;         /* bytes of that */
  void *adios, *engine, *variable;
};

static void close_reader(struct reader *reader) {
  pthread_mutex_lock(&library_lock);
  if (reader->engine)
    library.close(reader->engine);
  if (reader->adios)
    library.finalize(reader->adios);
  if (reader->engine)
    close(reader->data);
  pthread_mutex_unlock(&library_lock);
  reader->adios = reader->engine = reader->variable = NULL;
}

/* Compares the files with what was written. *data and *length: the content. */
static int check_sum(const struct shape *shape, const char *name, uint64_t index, int *data,
                     off_t *length) {
  int object = openat(shape->dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (object < 0)
    return failed("opening an object");
  char is[SUM_BYTES], was[SUM_BYTES] = "";
  int answer = describe(object, index, shape->chunk, shape->step, is);
  int fd = openat(object, "sum", O_RDONLY | O_CLOEXEC);
  if (!answer && (fd < 0 || read(fd, was, sizeof was - 1) < 0))
    answer = say(-EIO, "object %s has no sum: it was never whole", name);
  if (!answer && strcmp(is, was))
    answer = say(-EIO, "object %s is damaged: its files are not those that were written", name);
  if (fd >= 0)
    close(fd);
  struct stat about;
  *data = answer ? -1 : openat(object, "data.0", O_RDONLY | O_CLOEXEC);
  if (!answer && (*data < 0 || fstat(*data, &about)))
    answer = failed("opening the content of an object");
  if (!answer)
    *length = about.st_size;
  else if (*data >= 0)
    close(*data);
  close(object);
  return answer;
}

static int open_reader(const struct shape *shape, struct reader *reader, uint64_t index) {
  char name[NAME_BYTES], path[PATH_BYTES];
  snprintf(name, sizeof name, "%llu.bp", (unsigned long long)index);
  path_of(path, shape, name);
  int answer = check_sum(shape, name, index, &reader->data, &reader->length);
  if (answer)
    return answer;
  void *io = NULL;
  pthread_mutex_lock(&library_lock);
  reader->adios = library.init_serial();
  /* The node has threads of its own. */
  if (dataset(reader->adios, "Threads=1", &io))
    reader->engine = library.open(io, path, MODE_READ_RANDOM_ACCESS);
  if (reader->engine)
    reader->variable = library.inquire_variable(io, "bytes");
  pthread_mutex_unlock(&library_lock);
  reader->opened = index;
  if (reader->variable)
    return 0;
  if (!reader->engine)
    close(reader->data);
  close_reader(reader);
  return say(-EIO, "ADIOS2 does not open object %s", name);
}

/* Reads a range that is within the chunk. The caller has the reader's lock. */
static int get(const struct shape *shape, struct reader *reader, char *into, uint64_t count,
               uint64_t offset) {
  struct stat about;
  /* The library reads for ever behind the end of a file that was cut. */
  if (fstat(reader->data, &about) || about.st_size != reader->length)
    return say(-EIO, "an object that is open was cut or cannot be read any more");
  while (count > 0) {
    const size_t start = offset % shape->step, left = shape->step - start;
    const size_t n = count < left ? count : left;
    int code = library.set_step_selection(reader->variable, offset / shape->step, 1);
    if (!code)
      code = library.set_selection(reader->variable, 1, &start, &n);
    if (!code)
      code = library.get(reader->engine, reader->variable, into, MODE_SYNC);
    if (code)
      return refused("reading", code);
    into += n;
    offset += n;
    count -= n;
  }
  return 0;
}

#endif
