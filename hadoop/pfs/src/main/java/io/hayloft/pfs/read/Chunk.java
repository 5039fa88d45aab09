package io.hayloft.pfs.read;

import java.io.IOException;
import java.nio.ByteBuffer;

/** A buffer with bytes of a file from {@code start} on, or the error of reading them. */
final class Chunk {
  final ByteBuffer buffer;
  final long start;
  private IOException error;

  /** The bytes up to the limit of the buffer. */
  Chunk(ByteBuffer buffer, long start) {
    this.buffer = buffer;
    this.start = start;
  }

  /**
   * Reads up to {@code length} bytes; fewer only at the end of the file. An error is kept in the
   * chunk rather than thrown, so that the buffer always has an owner.
   */
  static Chunk fill(Attempt attempt, ByteBuffer buffer, long start, int length) {
    Chunk chunk = new Chunk(buffer, start);
    buffer.clear().limit(length);
    try {
      while (buffer.hasRemaining()) {
        if (attempt.read(buffer, start + buffer.position()) <= 0) {
          break;
        }
      }
    } catch (IOException e) {
      chunk.error = e;
    } catch (RuntimeException e) {
      chunk.error = new IOException(e);
    }
    buffer.flip();
    return chunk;
  }

  /** Throws the error unless bytes came before it. */
  void check() throws IOException {
    if (error != null && !buffer.hasRemaining()) {
      throw error;
    }
  }

  long end() {
    return start + buffer.limit();
  }

  boolean holds(long position) {
    return position >= start && position < end();
  }

  /** Copies from {@code position} on, which the chunk holds; gives the number of bytes. */
  int copy(long position, ByteBuffer into) {
    int from = (int) (position - start);
    int length = Math.min(buffer.limit() - from, into.remaining());
    into.put(into.position(), buffer, from, length);
    into.position(into.position() + length);
    return length;
  }
}
