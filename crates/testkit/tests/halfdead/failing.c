/* The example engine, on a disk that gives EIO when told so. The options name a file: while it is
 * there with ".write" behind its name no write succeeds, with ".read" no read. With ".blocks" no
 * read of a block does, while a check of the volume finds all well. */
#define hayloft_engine(nothing) files_engine(nothing)
#include "../../../../plugins/examples/files.c"
#undef hayloft_engine

#include <stdio.h>

static struct hayloft_engine failing;
static char fails_while[4096];

/* Bad sectors belong to a file. */
struct named {
  void *file;
  int is_block;
};

static int fails(const char *call) {
  char flag[4200];
  snprintf(flag, sizeof flag, "%s%s", fails_while, call);
  return access(flag, F_OK) == 0;
}

static int open_failing(const char *directory, const char *options, void **out) {
  strncpy(fails_while, options, sizeof fails_while - 1);
  return open_volume(directory, "", out);
}

static int open_named(void *volume, const char *path, int mode, void **out) {
  struct named *named = calloc(1, sizeof *named);
  if (!named)
    return -ENOMEM;
  const char *name = strrchr(path, '/');
  named->is_block = name && strncmp(name, "/blk_", 5) == 0;
  int answer = open_file(volume, path, mode, &named->file);
  if (answer) {
    free(named);
    return answer;
  }
  *out = named;
  return 0;
}

static void close_named(void *file) {
  struct named *named = file;
  close_file(named->file);
  free(named);
}

static int64_t failing_read(void *file, void *buffer, uint64_t count, uint64_t offset) {
  struct named *named = file;
  if (fails(".read") || (named->is_block && fails(".blocks")))
    return -EIO;
  return read_file(named->file, buffer, count, offset);
}

static int64_t failing_write(void *file, const void *buffer, uint64_t count, uint64_t offset) {
  struct named *named = file;
  return fails(".write") ? -EIO : write_file(named->file, buffer, count, offset);
}

static int cut_named(void *file, uint64_t length) {
  struct named *named = file;
  return table.truncate(named->file, length);
}

static int sync_named(void *file, int what) {
  struct named *named = file;
  return table.sync(named->file, what);
}

static int64_t length_named(void *file) {
  struct named *named = file;
  return table.length(named->file);
}

static int allocate_named(void *file, uint64_t length) {
  struct named *named = file;
  return table.allocate(named->file, length);
}

const struct hayloft_engine *hayloft_engine(void) {
  failing = table;
  failing.open_volume = open_failing;
  failing.open = open_named;
  failing.close = close_named;
  failing.read = failing_read;
  failing.write = failing_write;
  failing.truncate = cut_named;
  failing.sync = sync_named;
  failing.length = length_named;
  if (table.allocate)
    failing.allocate = allocate_named;
  return &failing;
}
