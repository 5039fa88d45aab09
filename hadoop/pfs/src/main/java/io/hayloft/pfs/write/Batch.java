package io.hayloft.pfs.write;

import io.hayloft.pfs.io.BufferPool;
import java.nio.ByteBuffer;

/**
 * A buffer that several sinks are being given. It may be filled again when all have taken it; when
 * one did not in time it is given up, and makes room in the pool once the last call has ended.
 */
final class Batch {
  final ByteBuffer buffer;
  private final BufferPool pool;
  private int calls;
  private boolean givenUp;

  /** {@code pool} null: the buffer is the stream's own. */
  Batch(ByteBuffer buffer, BufferPool pool) {
    this.buffer = buffer;
    this.pool = pool;
  }

  synchronized void begin() {
    calls++;
  }

  synchronized void end() {
    calls--;
    settle();
  }

  synchronized void giveUp() {
    givenUp = true;
    settle();
  }

  private void settle() {
    if (givenUp && calls == 0 && pool != null) {
      pool.throwAway();
    }
  }

  /** Gives the buffer back, when no call has it. */
  synchronized void release() {
    if (calls != 0 || givenUp) {
      throw new IllegalStateException("a buffer in use: " + calls + " calls");
    }
    if (pool != null) {
      pool.giveBack(buffer);
    }
  }
}
