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

  /** A quarter of the threads: as many may then hang in each of three copies. */
  int threadsOfVectored() {
    return Math.max(1, limit.threadCount() / 4);
  }

  /** Opens a source, or another of its copies when one fails or hangs. */
  public void open(Source source, String name) throws IOException {
    onCopies(source, attempt -> limit.run("open " + name, attempt::open));
  }

  /**
   * Reads at {@code position} until {@code into} is full; fewer bytes at the end, -1 for none.
   * After some bytes an error is left to the next read, which meets it too.
   */
  int readAt(Source source, String name, long position, ByteBuffer into) throws IOException {
    int total = 0;
    try {
      while (into.hasRemaining()) {
        int length = readOnce(source, name, position + total, into);
        if (length <= 0) {
          break;
        }
        total += length;
      }
    } catch (IOException e) {
      if (total == 0) {
        throw e;
      }
    }
    return total == 0 ? -1 : total;
  }

  private interface Try {
    int with(Attempt attempt) throws IOException;
  }

  private static int onCopies(Source source, Try call) throws IOException {
    while (true) {
      Attempt attempt = new Attempt(source);
      try {
        return call.with(attempt);
      } catch (MountHungException e) {
        attempt.moveOn(e);
      }
    }
  }

  private int readOnce(Source source, String name, long position, ByteBuffer into)
      throws IOException {
    return onCopies(source, attempt -> readOnce(attempt, name, position, into));
  }

  private int readOnce(Attempt attempt, String name, long position, ByteBuffer into)
      throws IOException {
    if (limit.limitMs() == 0) {
      return attempt.read(into, position);
    }
    // A read that times out may write into its buffer later: never let it be the caller's.
    BufferPool pool = into.remaining() > small.size() ? large : small;
    ByteBuffer buffer = pool.takeIfLeft();
    if (buffer == null) {
      pool = small;
      buffer = small.take(limit.limitMs());
    }
    int length = Math.min(into.remaining(), buffer.capacity());
    Chunk chunk = startFill(attempt, name, position, length, pool, buffer).await();
    try {
      chunk.check();
      return chunk.buffer.hasRemaining() ? chunk.copy(position, into) : -1;
    } finally {
      pool.giveBack(chunk.buffer);
    }
  }

  /** Starts to fill a buffer. One whose read is given up goes back when that read ends. */
  Pending<Chunk> startFill(
      Attempt attempt, String name, long position, int length, BufferPool pool, ByteBuffer buffer)
      throws IOException {
    return startFill(limit::start, attempt, name, position, length, pool, buffer);
  }

  /** As {@link #startFill}, but null, and the buffer given back, when all threads are busy. */
  Pending<Chunk> startFillIfRoom(
      Attempt attempt, String name, long position, int length, BufferPool pool, ByteBuffer buffer)
      throws IOException {
    return startFill(limit::startIfRoom, attempt, name, position, length, pool, buffer);
  }

  private interface Starter {
    Pending<Chunk> start(String what, TimeLimit.Call<Chunk> call) throws IOException;
  }

  private static Pending<Chunk> startFill(
      Starter starter,
      Attempt attempt,
      String name,
      long position,
      int length,
      BufferPool pool,
      ByteBuffer buffer)
      throws IOException {
    Pending<Chunk> pending = null;
    try {
      pending =
          starter.start("read " + name, () -> Chunk.fill(attempt, buffer, position, length));
    } finally {
      if (pending == null) {
        pool.giveBack(buffer);
      }
    }
    return pending == null ? null : pending.whenGivenUp(chunk -> pool.giveBack(buffer));
  }
}
