/* hayloft_engine.h: the interface between a Hayloft storage node and an I/O engine in a shared
 * object. SPDX-License-Identifier: Apache-2.0
 *
 * A plug-in exports one function, hayloft_engine, which returns its table. The node is told to
 * use it by
 *
 *     hayloft.io.engine.<data directory> = plugin:/path/of/engine.so options for the engine
 *
 * `hayloft engine test /path/of/engine.so DIR` tries it out: run it before any data depends on
 * it. Each of its cases rests on a sentence of this file, and prints it when it fails.
 *
 * LOADING. The node loads the object in a process of its own first, and asks that one for the
 * table. What crashes there, ends the process or takes longer than 30 s is refused: so an
 * initialiser may run twice, in two processes. An object that changes meanwhile is refused, too:
 * install one by renaming it into place. A running node keeps the one that it has loaded.
 *
 * VERSIONS. HAYLOFT_ENGINE_ABI changes only when a plug-in must be changed. Later nodes may know
 * more members at the end of the table: `size` tells which of them a plug-in has. A node refuses
 * a table of another ABI, one that is too short, or one that lacks a function that is not marked
 * optional.
 *
 * RESULTS. 0 or a count is success, a negative errno (-ENOSPC, -EIO, ...) is failure. The node
 * treats -EIO, -ENODEV and -EROFS as a failed volume, -ENOSPC as a full one.
 *
 * FILES. A path names a regular file in the volume's directory. What is no regular file does not
 * open: a directory gives -EISDIR or -EINVAL, a path below a file -ENOTDIR or -EINVAL. The node
 * renames, links, lists and deletes files itself, also while they are open: what an engine keeps
 * belongs to the inode, not to the name. A new file is empty, whatever had its name or its
 * inode's number before. A file may be open several times at once: what one handle has
 * completed, each sees. The bytes of a file must be in that file (HAYLOFT_IN_FILES), so that
 * Apache's DataNode finds them, or on a device (HAYLOFT_DEVICE), or nowhere at all. With
 * HAYLOFT_IN_FILES another process that reads the file finds them there as soon as a write has
 * completed, or its sync, without HAYLOFT_OUTLIVES_PROCESS.
 *
 * DEVICES. An engine with HAYLOFT_DEVICE has one file, which is a device of fixed size. The node
 * opens it once for each volume, with the volume's directory as the path, which opens here, and
 * decides where on it blocks are. The files in the directory are stubs: they have names and lengths. The first
 * MiB says whose the device is; a device that has something else there is refused. truncate is
 * never called, and reads and writes stay within length. Apache's DataNode refuses such a
 * directory.
 *
 * TRANSFERS. A completed write is what later reads of its range give, at any offset and of any
 * count. An engine with neither HAYLOFT_IN_FILES nor HAYLOFT_DEVICE keeps lengths alone: it
 * reads as zeros. The node makes a call for each of its buffers, and none for an empty one. The
 * node keeps offset + count below 2^63. A buffer is the node's again when the call returns. A
 * call that was made is never called off, even if its client goes away.
 *
 * DURABILITY. A completed write must outlive the process, and may rest on the kernel's page
 * cache. An engine that buffers writes in its own memory clears HAYLOFT_OUTLIVES_PROCESS; the
 * node then syncs each write before its client hears of it. After sync the bytes must outlive
 * power loss. After a failed sync the engine must not let a later one succeed for the same
 * bytes. A device tells of it once: the node remembers, and fails the sync of every file that
 * was written before.
 *
 * THREADS. The node calls from threads of its own, never from one that serves clients' sockets.
 * Queues, and whose turn it is, are the node's. Calls at the same time on ranges beside each
 * other leave each range as its own call did. A call that does not end within
 * dfs.datanode.disk.check.timeout fails the volume.
 */
#ifndef HAYLOFT_ENGINE_H
#define HAYLOFT_ENGINE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HAYLOFT_ENGINE_ABI 1

/* Which calls may be made at the same time: */
#define HAYLOFT_ONE_CALL 0   /* one in a volume */
#define HAYLOFT_ONE_A_FILE 1 /* one on an open file */
#define HAYLOFT_ANY_CALLS 2  /* any; ranges of two writes never overlap */

/* What an engine can do: */
#define HAYLOFT_IN_FILES 1u         /* the bytes are in the files themselves */
#define HAYLOFT_OUTLIVES_PROCESS 2u /* a completed write outlives kill -9 of the node */
#define HAYLOFT_PAGE_CACHE 4u       /* writes complete in the page cache, dirty until a sync */
#define HAYLOFT_DEVICE 8u           /* the one file is a device, and the bytes are on it */

/* How a file is opened: */
#define HAYLOFT_READ_ONLY 0  /* an existing one; -ENOENT without. The node itself refuses to write,
                              * truncate or allocate there. */
#define HAYLOFT_READ_WRITE 1 /* an existing one; -ENOENT without */
#define HAYLOFT_CREATE_NEW 2 /* a new one, for reading and writing; -EEXIST when it is there */

/* What a sync makes durable: */
#define HAYLOFT_SYNC_DATA 0 /* bytes, and the length that is needed to read them */
#define HAYLOFT_SYNC_ALL 1  /* the rest of the inode too */

struct hayloft_engine {
  uint32_t abi;              /* HAYLOFT_ENGINE_ABI */
  uint32_t size;             /* sizeof(struct hayloft_engine) */
  const char *name;          /* 1 to 32 of a-z, 0-9 and '-'; for logs */
  uint32_t threads;          /* one of the three above */
  uint32_t capabilities;     /* bits of the three above */
  /* Of buffers in memory: a power of two up to 4096. Buffers may have any alignment; others than
   * these may cost a copy. */
  uint64_t memory_alignment;

  /* A volume is opened once for each data directory, before any file of it. `options` is what
   * follows the path in the configuration, "" if nothing does. *volume goes into the calls
   * below. */
  int (*open_volume)(const char *directory, const char *options, void **volume);
  void (*close_volume)(void *volume);

  int (*open)(void *volume, const char *path, int mode, void **file);
  /* No other call on the file is under way, and none follows. After it nothing of the file stays
   * open, so that a deleted one gives its room back. */
  void (*close)(void *file);

  /* Up to `count` bytes from `offset`. 0 only at or beyond the end; fewer than asked is fine, the
   * node asks again. */
  int64_t (*read)(void *file, void *buffer, uint64_t count, uint64_t offset);
  /* Up to `count` bytes, at least one. A gap before `offset` reads as zeros. */
  int64_t (*write)(void *file, const void *buffer, uint64_t count, uint64_t offset);
  /* Cuts, or extends with zeros: what was cut does not come back when the file grows again. */
  int (*truncate)(void *file, uint64_t length);
  /* It may come at any time, for an empty file too; after it stat(2) of the file tells its
   * length. */
  int (*sync)(void *file, int what);
  /* In bytes, as the calls that have completed left it. */
  int64_t (*length)(void *file);

  /* Optional: room for the first `length` bytes, at least one, which does not change the length.
   * A later truncate gives back what is beyond its length. -EOPNOTSUPP where there is no such
   * thing. */
  int (*allocate)(void *file, uint64_t length);
  /* Optional: what went wrong in this thread's last call, a sentence without its end; NULL for
   * nothing to add. It is copied before the next call. */
  const char *(*last_error)(void);

  /* Since version 1 of the table grew; absent from shorter ones. */

  /* Optional, for devices: nothing in the range is needed any more. 0 or -EOPNOTSUPP; after any
   * other error the range is left alone until the next start, since the trim may still come. */
  int (*trim)(void *file, uint64_t offset, uint64_t length);
};

/* Called once, before anything else; the table stays valid for ever. */
const struct hayloft_engine *hayloft_engine(void);

#ifdef __cplusplus
}
#endif

#endif
