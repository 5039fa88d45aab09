package io.hayloft.pfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileRange;

/** Every kind of read that a stream has. */
public final class ReadKinds {
  /** The last bytes, which a vectored read gets in small ranges. */
  private static final int IN_SMALL_RANGES = 60_000;

  private static final int SMALL_RANGE = 2000;

  /** Reads a whole file of that length from the start. */
  public interface Kind {
    byte[] read(FSDataInputStream in, int length) throws Exception;
  }

  private ReadKinds() {}

  /** All of them by name. */
  public static Map<String, Kind> all() {
    Map<String, Kind> kinds = new LinkedHashMap<>();
    kinds.put("sequential", ReadKinds::sequential);
    kinds.put("ByteBuffer", ReadKinds::byteBuffers);
    kinds.put("positional", ReadKinds::positions);
    kinds.put("positional ByteBuffer", ReadKinds::byteBufferPositions);
    kinds.put("vectored", ReadKinds::vectored);
    return kinds;
  }

  private static byte[] sequential(FSDataInputStream in, int length) throws IOException {
    byte[] got = new byte[length];
    int at = 0;
    in.seek(0);
    while (at < length) {
      int more = in.read(got, at, Math.min(5000, length - at));
      assertTrue(more > 0, "ends at " + at);
      at += more;
    }
    assertEquals(-1, in.read());
    return got;
  }

  private static byte[] byteBuffers(FSDataInputStream in, int length) throws IOException {
    ByteBuffer got = ByteBuffer.allocateDirect(length);
    in.seek(0);
    while (got.hasRemaining()) {
      assertTrue(in.read(got) > 0);
    }
    byte[] bytes = new byte[length];
    got.flip().get(bytes);
    return bytes;
  }

  private static byte[] positions(FSDataInputStream in, int length) throws IOException {
    byte[] got = new byte[length];
    for (int at = 0; at < length; at += 70_001) {
      in.readFully(at, got, at, Math.min(70_001, length - at));
    }
    return got;
  }

  private static byte[] byteBufferPositions(FSDataInputStream in, int length)
      throws IOException {
    ByteBuffer got = ByteBuffer.allocate(length);
    in.readFully(0, got);
    return got.array();
  }

  /** One range of several buffers, and small ones, a byte apart so that they may stay alone. */
  public static List<FileRange> ranges(int length) {
    List<FileRange> ranges = new ArrayList<>();
    int at = length - IN_SMALL_RANGES;
    ranges.add(FileRange.createFileRange(0, at));
    for (at++; at < length; at += SMALL_RANGE + 1) {
      ranges.add(FileRange.createFileRange(at, Math.min(SMALL_RANGE, length - at)));
    }
    return ranges;
  }

  private static byte[] vectored(FSDataInputStream in, int length) throws Exception {
    ByteBuffer got = ByteBuffer.allocate(length);
    List<FileRange> ranges = ranges(length);
    List<FileRange> between = new ArrayList<>();
    for (FileRange range : ranges) {
      long end = range.getOffset() + range.getLength();
      if (end < length) {
        between.add(FileRange.createFileRange(end, 1));
      }
    }
    for (List<FileRange> some : List.of(ranges, between)) {
      in.readVectored(some, ByteBuffer::allocate);
      for (FileRange range : some) {
        ByteBuffer data = range.getData().get(60, TimeUnit.SECONDS);
        got.position((int) range.getOffset()).put(data);
      }
    }
    return got.array();
  }
}
