package io.hayloft.pfs.io;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/**
 * Buffers of one size outside the heap, at most so many. A buffer comes from the pool, is in one
 * pair of hands, and goes back; one whose call timed out goes back when that call ends, since the
 * mount may use it until then.
 */
public final class BufferPool {
  private record Shape(int size, int count) {}

  private static final Map<Shape, BufferPool> SHARED = new ConcurrentHashMap<>();

  private final int size;
  private final Semaphore left;
  private final ArrayDeque<ByteBuffer> idle = new ArrayDeque<>();

  /** At most {@code count} buffers of {@code size} bytes. */
  public BufferPool(int size, int count) {
    if (size < 1 || count < 0) {
      throw new IllegalArgumentException("buffers of " + size + " bytes, " + count + " of them");
    }
    this.size = size;
    this.left = new Semaphore(count);
  }

  /** The one pool of this process with these numbers, so that many file systems share a bound. */
  public static BufferPool shared(int size, int count) {
    return SHARED.computeIfAbsent(new Shape(size, count), shape -> new BufferPool(size, count));
  }

  /** Bytes of each buffer. */
  public int size() {
    return size;
  }

  /** How many more can be had now. */
  public int available() {
    return left.availablePermits();
  }

  /** An empty buffer, or null if all are taken or the machine has no memory for it. */
  public ByteBuffer takeIfLeft() {
    return left.tryAcquire() ? provide() : null;
  }

  /** An empty buffer; waits for one to come back, at most {@code limitMs} unless that is 0. */
  public ByteBuffer take(long limitMs) throws IOException {
    try {
      long waitMs = limitMs == 0 ? Long.MAX_VALUE : limitMs;
      if (left.tryAcquire(waitMs, TimeUnit.MILLISECONDS)) {
        ByteBuffer buffer = provide();
        if (buffer != null) {
          return buffer;
        }
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while waiting for a buffer");
    }
    throw new IOException(
        "no buffer of "
            + size
            + " bytes came free within "
            + limitMs
            + " ms; lower the number of open streams or raise fs.pfs.buffers.max"
            + " and -XX:MaxDirectMemorySize");
  }

  private ByteBuffer provide() {
    synchronized (idle) {
      ByteBuffer buffer = idle.pollLast();
      if (buffer != null) {
        return buffer.clear();
      }
    }
    try {
      return ByteBuffer.allocateDirect(size);
    } catch (OutOfMemoryError e) {
      // The limit of memory outside the heap: to the caller the pool is just used up.
      left.release();
      return null;
    }
  }

  /** Takes a buffer back. The caller must not touch it again. */
  public void giveBack(ByteBuffer buffer) {
    if (buffer.capacity() != size) {
      throw new IllegalArgumentException("a buffer of another pool: " + buffer);
    }
    synchronized (idle) {
      idle.addLast(buffer);
    }
    left.release();
  }
}
