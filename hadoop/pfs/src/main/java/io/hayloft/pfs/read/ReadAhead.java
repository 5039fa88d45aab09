package io.hayloft.pfs.read;

import io.hayloft.pfs.io.MountHungException;
import io.hayloft.pfs.io.Pending;
import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * Two large buffers of a stream: the caller reads from one while the mount fills the next. The
 * first fills are smaller, so a reader that leaves soon costs little. Not safe for threads; the
 * stream locks.
 */
final class ReadAhead {
  private static final int FIRST_WINDOW = 256 << 10;
  private static final int GROWTH = 4;

  private final Reads reads;
  private final Source source;
  private final String name;
  private final int windowMax;
  private int window;
  private Chunk current;
  private Pending<Chunk> next;
  private long nextStart;
  private int nextLength;
  private Attempt nextAttempt;

  ReadAhead(Reads reads, Source source, String name) {
    this.reads = reads;
    this.source = source;
    this.name = name;
    this.windowMax = reads.large().size();
  }

  /** Copies what the buffers hold at {@code position}; 0 if they do not hold it. */
  int read(long position, ByteBuffer into) throws IOException {
    if (current != null && current.holds(position)) {
      return current.copy(position, into);
    }
    if (next == null || position < nextStart || position >= nextStart + nextLength) {
      return 0;
    }
    Pending<Chunk> arriving = next;
    next = null;
    release();
    Chunk arrived;
    try {
      arrived = arriving.await();
    } catch (MountHungException e) {
      nextAttempt.moveOn(e);
      return 0;
    }
    current = arrived;
    if (!arrived.holds(position)) {
      // The end of the file, or an error: the caller's own read will tell which.
      release();
      return 0;
    }
    startNext();
    return arrived.copy(position, into);
  }

  /**
   * Begins anew at {@code position}; {@code whole} takes the full window at once. Gives the bytes
   * copied, 0 when there is no buffer for it, -1 at the end of the file.
   */
  int begin(long position, ByteBuffer into, boolean whole) throws IOException {
    boolean goesOn = current != null && current.end() == position;
    drop();
    if (!goesOn) {
      window = whole ? windowMax : Math.min(FIRST_WINDOW, windowMax);
    }
    ByteBuffer buffer = reads.large().takeIfLeft();
    if (buffer == null) {
      return 0;
    }
    Chunk first;
    Attempt attempt = new Attempt(source);
    try {
      first = reads.startFill(attempt, name, position, window, reads.large(), buffer).await();
    } catch (MountHungException e) {
      attempt.moveOn(e);
      return 0;
    }
    current = first;
    if (!first.holds(position)) {
      try {
        first.check();
      } finally {
        release();
      }
      return -1;
    }
    startNext();
    return first.copy(position, into);
  }

  private void startNext() throws IOException {
    boolean cameShort = current.buffer.limit() < window;
    if (cameShort || current.end() >= source.length()) {
      return;
    }
    ByteBuffer buffer = reads.large().takeIfLeft();
    if (buffer == null) {
      return;
    }
    window = (int) Math.min(windowMax, (long) window * GROWTH);
    nextStart = current.end();
    nextLength = window;
    nextAttempt = new Attempt(source);
    next = reads.startFillIfRoom(nextAttempt, name, nextStart, window, reads.large(), buffer);
  }

  private void release() {
    if (current != null) {
      reads.large().giveBack(current.buffer);
      current = null;
    }
  }

  /** Gives both buffers back; one that is being filled is left to the mount. */
  void drop() {
    release();
    Pending<Chunk> arriving = next;
    next = null;
    if (arriving == null || arriving.giveUp()) {
      return;
    }
    try {
      reads.large().giveBack(arriving.await().buffer);
    } catch (IOException e) {
      throw new IllegalStateException("a fill keeps its error in the chunk", e);
    }
  }
}
