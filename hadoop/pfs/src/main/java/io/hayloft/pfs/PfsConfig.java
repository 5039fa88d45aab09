package io.hayloft.pfs;

import io.hayloft.pfs.copies.Copies;
import io.hayloft.pfs.copies.Target;
import io.hayloft.pfs.io.Limits;
import java.net.InetAddress;
import java.net.URI;
import java.net.UnknownHostException;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;

/** The numbers of the configuration, checked. Mistakes are an IllegalArgumentException. */
record PfsConfig(
    Path root,
    boolean mustBeMount,
    long blockSize,
    int readahead,
    int writeBuffer,
    long buffersMax,
    int vectorGap,
    long timeoutMs,
    int threads,
    boolean hflushForce) {
  private static final int MIB = 1 << 20;

  static PfsConfig of(URI uri, Configuration conf) {
    return new PfsConfig(
        root(uri, conf),
        conf.getBoolean(PfsKeys.MUST_BE_MOUNT, PfsKeys.MUST_BE_MOUNT_DEFAULT),
        size(conf, PfsKeys.BLOCK_SIZE, PfsKeys.BLOCK_SIZE_DEFAULT, MIB, 1L << 40),
        (int) size(conf, PfsKeys.READAHEAD, PfsKeys.READAHEAD_DEFAULT, 4096, 256L * MIB),
        (int) size(conf, PfsKeys.WRITE_BUFFER, PfsKeys.WRITE_BUFFER_DEFAULT, 4096, 256L * MIB),
        size(conf, PfsKeys.BUFFERS_MAX, PfsKeys.BUFFERS_MAX_DEFAULT, MIB, 1L << 40),
        (int) size(conf, PfsKeys.VECTOR_GAP, PfsKeys.VECTOR_GAP_DEFAULT, 0, 16L * MIB),
        millis(conf, PfsKeys.TIMEOUT, PfsKeys.TIMEOUT_DEFAULT_MS),
        (int)
            Limits.checked(
                PfsKeys.THREADS, conf.getInt(PfsKeys.THREADS, PfsKeys.THREADS_DEFAULT), 1, 1024),
        conf.getBoolean(PfsKeys.HFLUSH_FORCE, PfsKeys.HFLUSH_FORCE_DEFAULT));
  }

  /** What the configuration says of copies. */
  static Copies copies(Configuration conf, Path root) {
    List<Target> targets = Target.parse(conf.get(PfsKeys.TARGETS, ""), root);
    return new Copies(
        root,
        targets,
        // A name service is not asked for what only copies need.
        targets.isEmpty() ? "" : localHost(conf),
        conf.getInt(PfsKeys.COPIES, PfsKeys.COPIES_DEFAULT),
        conf.get(PfsKeys.COPIES_LAYOUT, PfsKeys.COPIES_LAYOUT_DEFAULT));
  }

  private static String localHost(Configuration conf) {
    String host = conf.getTrimmed(PfsKeys.HOST, "");
    if (!host.isEmpty()) {
      return host;
    }
    try {
      return InetAddress.getLocalHost().getHostName();
    } catch (UnknownHostException e) {
      // Then no target is this host, and every copy is as near as another.
      return "";
    }
  }

  static Path root(URI uri, Configuration conf) {
    String key =
        uri.getAuthority() == null ? PfsKeys.ROOT : PfsKeys.ROOT + "." + uri.getAuthority();
    String value = conf.getTrimmed(key, "");
    if (value.isEmpty()) {
      throw new IllegalArgumentException(
          "set " + key + " to the directory where the file system of " + uri + " is mounted");
    }
    try {
      Path root = Path.of(value);
      if (root.isAbsolute()) {
        return root.normalize();
      }
    } catch (InvalidPathException e) {
      throw new IllegalArgumentException(key + " is no directory name: " + e.getMessage(), e);
    }
    throw new IllegalArgumentException(key + " must be an absolute directory, not " + value);
  }

  private static long millis(Configuration conf, String key, long byDefault) {
    long ms = conf.getTimeDuration(key, byDefault, TimeUnit.MILLISECONDS);
    return Limits.checked(key, ms, 0, TimeUnit.DAYS.toMillis(1));
  }

  private static long size(Configuration conf, String key, long byDefault, long least, long most) {
    return Limits.checked(key, conf.getLongBytes(key, byDefault), least, most);
  }
}
