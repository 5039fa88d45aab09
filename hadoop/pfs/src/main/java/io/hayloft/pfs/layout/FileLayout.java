package io.hayloft.pfs.layout;

import java.util.ArrayList;
import java.util.List;
import java.util.function.LongFunction;

/**
 * Where a file lies: servers of each chunk, in the file system's own names. Chunks have {@code
 * chunkSize} bytes, the last one what is left. Chunks beyond the list repeat it from its start,
 * as stripes do.
 */
public record FileLayout(long chunkSize, List<List<String>> servers) {
  /** Chunks that {@link #sampled} lists: of 4 MiB, those of 64 GiB. */
  private static final int SAMPLES_MAX = 1 << 14;

  /** A file that is whole wherever it is. */
  public static FileLayout whole(List<String> servers) {
    return new FileLayout(Long.MAX_VALUE, List.of(servers));
  }

  /**
   * A file of {@code length} bytes whose servers are known for each offset. It has chunks of
   * {@code unit} bytes; those of a file with very many are larger, and have the servers of their
   * first byte.
   */
  public static FileLayout sampled(long length, long unit, LongFunction<List<String>> serversAt) {
    long chunk = sample(length, unit);
    List<List<String>> servers = new ArrayList<>();
    for (long at = 0; at >= 0 && at < length; at += chunk) {
      servers.add(serversAt.apply(at));
    }
    return new FileLayout(chunk, servers);
  }

  /** The bytes from one offset that {@link #sampled} asks for to the next. */
  static long sample(long length, long unit) {
    long chunk = unit;
    while (length / chunk >= SAMPLES_MAX) {
      chunk *= 2;
    }
    return chunk;
  }

  /** Checks and copies. */
  public FileLayout {
    if (chunkSize < 1) {
      throw new IllegalArgumentException("chunks of " + chunkSize + " bytes");
    }
    servers = List.copyOf(servers);
  }
}
