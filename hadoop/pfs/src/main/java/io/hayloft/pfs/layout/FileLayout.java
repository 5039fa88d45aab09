package io.hayloft.pfs.layout;

import java.util.List;

/**
 * Where a file lies: servers of each chunk, in the file system's own names. Chunks have {@code
 * chunkSize} bytes, the last one what is left. Chunks beyond the list repeat it from its start,
 * as stripes do.
 */
public record FileLayout(long chunkSize, List<List<String>> servers) {
  /** A file that is whole wherever it is. */
  public static FileLayout whole(List<String> servers) {
    return new FileLayout(Long.MAX_VALUE, List.of(servers));
  }

  /** Checks and copies. */
  public FileLayout {
    if (chunkSize < 1) {
      throw new IllegalArgumentException("chunks of " + chunkSize + " bytes");
    }
    servers = List.copyOf(servers);
  }
}
