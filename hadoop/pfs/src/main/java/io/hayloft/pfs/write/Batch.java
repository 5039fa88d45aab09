package io.hayloft.pfs.write;

import io.hayloft.pfs.io.BufferPool;
import java.nio.ByteBuffer;

/**
 * A buffer that several sinks are being given. It goes back to its pool when the stream is done
 * with it and the last call has ended: one that timed out may still read it.
 */
final class Batch {
  final ByteBuffer buffer;
  private final BufferPool pool;
  private int calls;
  private boolean released;

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
    giveBackIfFree();
  }

  /** The stream is done with it. */
  synchronized void release() {
    released = true;
    giveBackIfFree();
  }

  private void giveBackIfFree() {
    if (released && calls == 0 && pool != null) {
      pool.giveBack(buffer);
    }
  }
}
