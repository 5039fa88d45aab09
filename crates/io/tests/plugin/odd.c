/* The example engine, changed in ways that a node has to cope with: -DWAY=n. */
#define hayloft_engine(nothing) files_engine(nothing)
#include "../../../../plugins/examples/files.c"
#undef hayloft_engine

#include <stdatomic.h>
#include <stdio.h>

enum way {
  OTHER_ABI = 1,
  SHORT_TABLE,
  MISSING,
  BAD_NAME,
  UNKNOWN_BITS,
  BAD_ALIGNMENT,
  BAD_THREADS,
  NO_TABLE,
  NO_NAME,
  FEW_BYTES,
  ONE_AT_A_TIME,
  ONE_A_FILE_AT_A_TIME,
  MORE_THAN_ASKED,
  NOTHING_WRITTEN,
  NO_ERRNO,
  BUFFERING,
  RUDE_WORDS,
  NO_SPACE,
  HANGING,
  ALL_ZEROS,
  LONGER_THAN_IT_IS,
  NEVER_CUT,
  OPENS_ANYTHING,
  WRONG_ERRNO,
  ONE_BYTE_OFF,
  NO_SYNC,
  STILL_IN_MEMORY,
  NEVER_CLOSED,
  CRASHING,
  ENDING,
};

static struct hayloft_engine odd;

static int64_t few_read(void *file, void *buffer, uint64_t count, uint64_t offset) {
  return read_file(file, buffer, count > 4099 ? 4099 : count, offset);
}

static int64_t few_written(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  return write_file(file, buffer, count > 4099 ? 4099 : count, offset);
}

/* A volume that counts the calls that are under way. */
struct counting {
  struct volume volume;
  atomic_int calls;
};

static int open_counting(const char *directory, const char *options, void **out) {
  (void)directory, (void)options;
  *out = calloc(1, sizeof(struct counting));
  return *out ? 0 : -ENOMEM;
}

static atomic_int *calls_of(const void *file) {
  return &((struct counting *)((const struct file *)file)->volume)->calls;
}

static int64_t alone_read(void *file, void *buffer, uint64_t count, uint64_t offset) {
  int others = atomic_fetch_add(calls_of(file), 1);
  int64_t got = read_file(file, buffer, count, offset);
  usleep(100);
  atomic_fetch_sub(calls_of(file), 1);
  return others ? -EDEADLK : got;
}

static int64_t alone_written(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  int others = atomic_fetch_add(calls_of(file), 1);
  int64_t put = write_file(file, buffer, count, offset);
  usleep(100);
  atomic_fetch_sub(calls_of(file), 1);
  return others ? -EDEADLK : put;
}

static int64_t more_read(void *file, void *buffer, uint64_t count, uint64_t offset) {
  (void)file, (void)buffer, (void)offset;
  return (int64_t)count + 1;
}

static int64_t more_written(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  (void)file, (void)buffer, (void)offset;
  return (int64_t)count + 1;
}

static int64_t nothing_written(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  (void)file, (void)buffer, (void)count, (void)offset;
  return 0;
}

static int64_t nonsense_read(void *file, void *buffer, uint64_t count, uint64_t offset) {
  (void)file, (void)buffer, (void)count, (void)offset;
  return INT64_MIN;
}

static int64_t nonsense_written(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  (void)file, (void)buffer, (void)count, (void)offset;
  return -5000;
}

static int64_t no_space(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  (void)file, (void)buffer, (void)count, (void)offset;
  why = "the shelf is full";
  return -ENOSPC;
}

/* Bytes of the last write, which a sync puts into the file. */
static struct {
  char bytes[1 << 16];
  uint64_t count, offset;
} waiting;

static int64_t buffered(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  (void)file;
  waiting.count = count > sizeof waiting.bytes ? sizeof waiting.bytes : count;
  waiting.offset = offset;
  memcpy(waiting.bytes, buffer, waiting.count);
  return (int64_t)waiting.count;
}

static int flush(void *file, int what) {
  if (write_file(file, waiting.bytes, waiting.count, waiting.offset) < 0)
    return -EIO;
  waiting.count = 0;
  return sync_file(file, what);
}

/* The options name a file: while it is there, no write ends. With ".open" behind its name: no volume
 * is opened. With ".read", ".sync", ".file", ".length" or ".close": none of these ends, where
 * ".file" stands for the opening of a file. */
static char hang_while[4096];

static void hang(const char *call) {
  char flag[4200];
  snprintf(flag, sizeof flag, "%s%s", hang_while, call);
  while (access(flag, F_OK) == 0)
    usleep(20000);
}

static int open_hanging(const char *directory, const char *options, void **out) {
  strncpy(hang_while, options, sizeof hang_while - 1);
  hang(".open");
  return open_volume(directory, "", out);
}

static int64_t hanging_read(void *file, void *buffer, uint64_t count, uint64_t offset) {
  hang(".read");
  return read_file(file, buffer, count, offset);
}

static int64_t hanging_write(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  hang("");
  return write_file(file, buffer, count, offset);
}

static int hanging_sync(void *file, int what) {
  hang(".sync");
  return sync_file(file, what);
}

static int hanging_file(void *volume, const char *path, int mode, void **out) {
  hang(".file");
  return open_file(volume, path, mode, out);
}

static int64_t hanging_length(void *file) {
  hang(".length");
  return length(file);
}

static void hanging_close(void *file) {
  hang(".close");
  close_file(file);
}

/* Engines that lie, each in one call. */
static int64_t zeros_read(void *file, void *buffer, uint64_t count, uint64_t offset) {
  int64_t got = read_file(file, buffer, count, offset);
  if (got > 0)
    memset(buffer, 0, (size_t)got);
  return got;
}

static int64_t longer(void *file) { return length(file) + 1; }

static int never_cut(void *file, uint64_t length) {
  (void)file, (void)length;
  return 0;
}

static int open_anything(void *volume, const char *path, int mode, void **out) {
  struct file *file = malloc(sizeof *file);
  int flags = mode == HAYLOFT_READ_ONLY ? O_RDONLY : O_RDWR;
  file->volume = volume;
  file->fd = open(path, mode == HAYLOFT_CREATE_NEW ? flags | O_CREAT : flags, 0644);
  *out = file;
  return file->fd < 0 ? failed("open") : 0;
}

static int open_or_eio(void *volume, const char *path, int mode, void **out) {
  int answer = open_file(volume, path, mode, out);
  return answer == -ENOENT ? -EIO : answer;
}

static int64_t off_by_one(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  return write_file(file, buffer, count, offset + 1);
}

static int no_sync(void *file, int what) {
  (void)file, (void)what;
  why = "the shelf is locked";
  return -EIO;
}

static void never_closed(void *file) { (void)file; }

static int64_t crashing(void *file, void *buffer, uint64_t count, uint64_t offset) {
  static int *volatile nowhere;
  (void)file, (void)buffer, (void)count, (void)offset;
  return *nowhere;
}

static int64_t ending(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  (void)file, (void)buffer, (void)count, (void)offset;
  exit(0);
}

static const char *rude_words(void) {
  static char words[10000];
  memset(words, 'x', sizeof words - 1);
  words[0] = '\n';
  words[1] = '\033';
  words[2] = (char)0xff;
  return words;
}

const struct hayloft_engine *hayloft_engine(void) {
  odd = table;
  switch ((enum way)WAY) {
  case OTHER_ABI: odd.abi = 2; break;
  case SHORT_TABLE: odd.size = 64; break;
  case MISSING: odd.sync = NULL; odd.length = NULL; break;
  case BAD_NAME: odd.name = "Files!"; break;
  case UNKNOWN_BITS: odd.capabilities |= 1u << 31; break;
  case BAD_ALIGNMENT: odd.memory_alignment = 3; break;
  case BAD_THREADS: odd.threads = 7; break;
  case NO_TABLE: return NULL;
  case NO_NAME: odd.name = NULL; break;
  case FEW_BYTES: odd.read = few_read; odd.write = few_written; break;
  case ONE_AT_A_TIME:
    odd.threads = HAYLOFT_ONE_CALL;
    odd.open_volume = open_counting;
    odd.read = alone_read;
    odd.write = alone_written;
    break;
  case ONE_A_FILE_AT_A_TIME: odd.threads = HAYLOFT_ONE_A_FILE; break;
  case MORE_THAN_ASKED: odd.read = more_read; odd.write = more_written; break;
  case NOTHING_WRITTEN: odd.write = nothing_written; break;
  case NO_ERRNO: odd.read = nonsense_read; odd.write = nonsense_written; break;
  case BUFFERING:
    odd.capabilities = HAYLOFT_IN_FILES;
    odd.threads = HAYLOFT_ONE_CALL;
    odd.write = buffered;
    odd.sync = flush;
    break;
  case RUDE_WORDS: odd.last_error = rude_words; odd.write = no_space; break;
  case NO_SPACE: odd.write = no_space; break;
  case HANGING:
    odd.open_volume = open_hanging;
    odd.read = hanging_read;
    odd.write = hanging_write;
    odd.sync = hanging_sync;
    odd.open = hanging_file;
    odd.length = hanging_length;
    odd.close = hanging_close;
    break;
  case ALL_ZEROS: odd.read = zeros_read; break;
  case LONGER_THAN_IT_IS: odd.length = longer; break;
  case NEVER_CUT: odd.truncate = never_cut; break;
  case OPENS_ANYTHING: odd.open = open_anything; break;
  case WRONG_ERRNO: odd.open = open_or_eio; break;
  case ONE_BYTE_OFF: odd.write = off_by_one; break;
  case NO_SYNC: odd.sync = no_sync; break;
  case STILL_IN_MEMORY:
    odd.threads = HAYLOFT_ONE_CALL;
    odd.write = buffered;
    odd.sync = flush;
    break;
  case NEVER_CLOSED: odd.close = never_closed; break;
  case CRASHING: odd.read = crashing; break;
  case ENDING: odd.write = ending; break;
  }
  return &odd;
}
