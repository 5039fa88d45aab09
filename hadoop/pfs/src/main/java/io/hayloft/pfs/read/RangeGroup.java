package io.hayloft.pfs.read;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import org.apache.hadoop.fs.FileRange;

/** Ranges that are one read, and the buffers of the caller that it fills. Its run locks. */
final class RangeGroup {
  private record Part(FileRange range, ByteBuffer buffer, CompletableFuture<ByteBuffer> done) {}

  private final long start;
  private final Consumer<ByteBuffer> release;
  private final List<Part> parts = new ArrayList<>();
  private long end;
  private long filledTo;

  /** An empty group; {@code release} gets the buffers of one that fails. */
  RangeGroup(long start, Consumer<ByteBuffer> release) {
    this.start = start;
    this.release = release;
    this.end = start;
    this.filledTo = start;
  }

  /** Whether the range is close enough to the others, and all of them fit into a buffer. */
  boolean takes(FileRange range, int gap, int most) {
    return range.getOffset() - end <= gap
        && range.getOffset() + range.getLength() - start <= most;
  }

  void add(FileRange range, ByteBuffer buffer) {
    parts.add(new Part(range, buffer, range.getData()));
    end = Math.max(end, range.getOffset() + range.getLength());
  }

  long end() {
    return end;
  }

  /** Up to here the buffers are filled. */
  long filledTo() {
    return filledTo;
  }

  /** Fills the buffers with the bytes that follow; gives their number. */
  int fill(Chunk chunk) {
    int copied = 0;
    for (Part part : parts) {
      long from = part.range.getOffset() + part.buffer.position();
      if (part.buffer.hasRemaining() && chunk.holds(from)) {
        copied += chunk.copy(from, part.buffer);
      }
    }
    filledTo = chunk.end();
    return copied;
  }

  void complete() {
    for (Part part : parts) {
      part.buffer.flip();
      part.done.complete(part.buffer);
    }
  }

  void fail(IOException e) {
    for (Part part : parts) {
      // Before the caller hears of it, so that the buffer is back by then.
      release.accept(part.buffer);
      part.done.completeExceptionally(e);
    }
  }
}
