package io.hayloft.pfs.read;

import io.hayloft.pfs.io.BufferPool;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.VectoredReadUtils;

/**
 * Reads many ranges of a file at once. Ranges close to each other are one read of at most a large
 * buffer; a range of more than that is read in parts. The caller's buffers are filled after the
 * mount has answered, so a late answer never lands in one.
 */
final class VectoredReads {
  private final Reads reads;
  private final Source source;
  private final String name;
  private final int gap;
  private final Consumer<Integer> counted;

  /** One range of the caller, and the buffer to fill. */
  private record Part(FileRange range, ByteBuffer buffer, CompletableFuture<ByteBuffer> done) {
    long end() {
      return range.getOffset() + range.getLength();
    }
  }

  VectoredReads(Reads reads, Source source, String name, int gap, Consumer<Integer> counted) {
    this.reads = reads;
    this.source = source;
    this.name = name;
    this.gap = gap;
    this.counted = counted;
  }

  void start(
      List<? extends FileRange> ranges,
      IntFunction<ByteBuffer> allocate,
      Consumer<ByteBuffer> release)
      throws IOException {
    // Checked without the length: the file may have grown since it was opened.
    List<? extends FileRange> sorted =
        VectoredReadUtils.validateAndSortRanges(ranges, Optional.empty());
    for (FileRange range : sorted) {
      if (range.getOffset() > Long.MAX_VALUE - range.getLength()) {
        throw new EOFException(name + ": no file reaches to the end of " + range);
      }
      range.setData(new CompletableFuture<>());
    }
    List<Part> group = new ArrayList<>();
    for (FileRange range : sorted) {
      if (!group.isEmpty() && !fits(group, range)) {
        read(group, release);
        group = new ArrayList<>();
      }
      // A pool may give a larger buffer than asked for.
      ByteBuffer buffer = allocate.apply(range.getLength()).clear().limit(range.getLength());
      group.add(new Part(range, buffer, range.getData()));
    }
    if (!group.isEmpty()) {
      read(group, release);
    }
  }

  private boolean fits(List<Part> group, FileRange range) {
    long start = group.get(0).range.getOffset();
    long end = group.get(group.size() - 1).end();
    return range.getOffset() - end <= gap
        && range.getOffset() + range.getLength() - start <= reads.large().size();
  }

  /** Starts the read of a group; its parts learn of an error through their futures. */
  private void read(List<Part> group, Consumer<ByteBuffer> release) {
    long start = group.get(0).range.getOffset();
    long end = group.stream().mapToLong(Part::end).max().orElse(start);
    Delivery delivery = new Delivery(group, release);
    delivery.limitTo(reads.limit().limitMs());
    try {
      reads.limit().start("read " + name, () -> deliver(delivery, start, end));
    } catch (IOException e) {
      delivery.fail(e);
    }
  }

  private Void deliver(Delivery delivery, long start, long end) {
    BufferPool pool = end - start > reads.small().size() ? reads.large() : reads.small();
    ByteBuffer buffer = null;
    try {
      buffer = pool.takeIfLeft();
      if (buffer == null) {
        pool = reads.small();
        buffer = pool.take(reads.limit().limitMs());
      }
      long at = start;
      while (at < end && !delivery.isOver()) {
        int length = (int) Math.min(buffer.capacity(), end - at);
        Chunk chunk = Chunk.fill(source, buffer, at, length);
        chunk.check();
        if (!chunk.buffer.hasRemaining()) {
          throw new EOFException(name + " ends at " + at + ", within a range");
        }
        delivery.take(chunk);
        at = chunk.end();
      }
      delivery.complete();
    } catch (IOException | RuntimeException e) {
      delivery.fail(e instanceof IOException ? (IOException) e : new IOException(e));
    } finally {
      if (buffer != null) {
        pool.giveBack(buffer);
      }
    }
    return null;
  }

  private static void fail(Part part, Consumer<ByteBuffer> release, IOException e) {
    // Before the caller hears of it, so that the buffer is back by then.
    release.accept(part.buffer);
    part.done.completeExceptionally(e);
  }

  /** Fills the caller's buffers until it is over, by success, error or time. */
  private final class Delivery {
    private final List<Part> parts;
    private final Consumer<ByteBuffer> release;
    private final CompletableFuture<Void> clock = new CompletableFuture<>();
    private boolean over;

    Delivery(List<Part> parts, Consumer<ByteBuffer> release) {
      this.parts = parts;
      this.release = release;
    }

    /** Fails the parts when the mount does not answer in time; 0 is no limit. */
    void limitTo(long limitMs) {
      if (limitMs > 0) {
        clock
            .orTimeout(limitMs, TimeUnit.MILLISECONDS)
            .whenComplete((nothing, late) -> failLate(late));
      }
    }

    private synchronized void failLate(Throwable late) {
      if (late != null && !over) {
        fail(reads.limit().hung("read " + name));
      }
    }

    synchronized boolean isOver() {
      return over;
    }

    synchronized void take(Chunk chunk) {
      if (over) {
        return;
      }
      for (Part part : parts) {
        long from = part.range.getOffset() + part.buffer.position();
        if (part.buffer.hasRemaining() && chunk.holds(from)) {
          counted.accept(chunk.copy(from, part.buffer));
        }
      }
    }

    synchronized void complete() {
      if (!over) {
        over = true;
        clock.complete(null);
        for (Part part : parts) {
          part.buffer.flip();
          part.done.complete(part.buffer);
        }
      }
    }

    synchronized void fail(IOException e) {
      if (!over) {
        over = true;
        clock.complete(null);
        parts.forEach(part -> VectoredReads.fail(part, release, e));
      }
    }
  }
}
