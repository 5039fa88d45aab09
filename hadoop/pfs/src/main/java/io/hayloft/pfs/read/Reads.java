package io.hayloft.pfs.read;

import io.hayloft.pfs.io.BufferPool;
import io.hayloft.pfs.io.MountHungException;
import io.hayloft.pfs.io.Pending;
import io.hayloft.pfs.io.TimeLimit;
import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * What all streams of a file system share to read: threads with a limit of time, and two pools of
 * buffers. Streams hold large buffers between calls; small ones only a call holds, so waiting for
 * one of those ends.
 */
public record Reads(TimeLimit limit, BufferPool large, BufferPool small) {

  /** Reads at {@code position} until {@code into} is full; fewer bytes at the end, -1 for none. */
  int readAt(Source source, String name, long position, ByteBuffer into) throws IOException {
    int total = 0;
    while (into.hasRemaining()) {
      int length;
      Source used = source.current();
      try {
        length = readOnce(source, name, position + total, into);
      } catch (MountHungException e) {
        moveOn(source, used, name, e);
        continue;
      }
      if (length <= 0) {
        break;
      }
      total += length;
    }
    return total == 0 ? -1 : total;
  }

  /** Lets the source go over to another copy than {@code hung}; throws the error if it has none. */
  void moveOn(Source source, Source hung, String name, MountHungException e) throws IOException {
    if (!limit.run("open another copy of " + name, () -> source.moveOn(hung, e))) {
      throw e;
    }
  }

  private int readOnce(Source source, String name, long position, ByteBuffer into)
      throws IOException {
    if (limit.limitMs() == 0) {
      return source.read(into, position);
    }
    // A read that times out may write into its buffer later: never let it be the caller's.
    BufferPool pool = into.remaining() > small.size() ? large : small;
    ByteBuffer buffer = pool.takeIfLeft();
    if (buffer == null) {
      pool = small;
      buffer = small.take(limit.limitMs());
    }
    int length = Math.min(into.remaining(), buffer.capacity());
    Chunk chunk = startFill(source, name, position, length, pool, buffer).await();
    try {
      chunk.check();
      return chunk.buffer.hasRemaining() ? chunk.copy(position, into) : -1;
    } finally {
      pool.giveBack(chunk.buffer);
    }
  }

  /** Starts to fill a buffer. One whose read is given up goes back when that read ends. */
  Pending<Chunk> startFill(
      Source source, String name, long position, int length, BufferPool pool, ByteBuffer buffer)
      throws IOException {
    return startFill(limit::start, source, name, position, length, pool, buffer);
  }

  /** As {@link #startFill}, but null, and the buffer given back, when all threads are busy. */
  Pending<Chunk> startFillIfRoom(
      Source source, String name, long position, int length, BufferPool pool, ByteBuffer buffer)
      throws IOException {
    return startFill(limit::startIfRoom, source, name, position, length, pool, buffer);
  }

  private interface Starter {
    Pending<Chunk> start(String what, TimeLimit.Call<Chunk> call) throws IOException;
  }

  private static Pending<Chunk> startFill(
      Starter starter,
      Source source,
      String name,
      long position,
      int length,
      BufferPool pool,
      ByteBuffer buffer)
      throws IOException {
    Pending<Chunk> pending = null;
    try {
      pending =
          starter.start("read " + name, () -> Chunk.fill(source, buffer, position, length));
    } finally {
      if (pending == null) {
        pool.giveBack(buffer);
      }
    }
    return pending == null ? null : pending.whenGivenUp(chunk -> pool.giveBack(buffer));
  }
}
