package io.hayloft.pfs.read;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.VectoredReadUtils;

/**
 * Reads many ranges of a file at once. Ranges close to each other are one read of at most a large
 * buffer; a range of more than that is read in parts.
 */
final class VectoredReads {
  private final Reads reads;
  private final Source source;
  private final String name;
  private final int gap;
  private final Consumer<Integer> counted;

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
    Deque<RangeGroup> groups = new ArrayDeque<>();
    for (FileRange range : sorted) {
      if (groups.isEmpty() || !groups.getLast().takes(range, gap, reads.large().size())) {
        groups.add(new RangeGroup(range.getOffset(), release));
      }
      // A pool may give a larger buffer than asked for.
      ByteBuffer buffer = allocate.apply(range.getLength()).clear().limit(range.getLength());
      groups.getLast().add(range, buffer);
    }
    new VectoredRun(reads, source, name, counted, groups).begin();
  }
}
