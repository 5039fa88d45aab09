package io.hayloft.placement;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.function.Function;
import java.util.function.UnaryOperator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A value parsed from a file, parsed again when the file changes. A file that cannot be read or
 * parsed later on leaves the last good value in place and is logged once for each change; at the
 * start it throws.
 *
 * @param <T> the parsed value, immutable
 */
final class WatchedFile<T> {
  private static final Logger LOG = LoggerFactory.getLogger(WatchedFile.class);

  private final Path file;
  private final Function<Path, T> parse;
  private volatile T value;
  private Stamp stamp;

  /** What tells one version of a file from the next; a missing file has stamp null. */
  private record Stamp(long modifiedMs, long size, Object fileKey) {
    static Stamp of(Path file) {
      try {
        BasicFileAttributes a = Files.readAttributes(file, BasicFileAttributes.class);
        return new Stamp(a.lastModifiedTime().toMillis(), a.size(), a.fileKey());
      } catch (IOException e) {
        return null;
      }
    }
  }

  /** Reads the file for the first time; throws what {@code parse} throws. */
  WatchedFile(Path file, Function<Path, T> parse) {
    this.file = file;
    this.parse = parse;
    this.stamp = Stamp.of(file);
    this.value = parse.apply(file);
  }

  T get() {
    return value;
  }

  /** Replaces the value by what {@code change} makes of it, which may be the same; never null. */
  synchronized void update(UnaryOperator<T> change) {
    value = change.apply(value);
  }

  /** Looks at the file; returns whether there is a new value. Blocks on file I/O. */
  synchronized boolean check() {
    Stamp now = Stamp.of(file);
    if (now == null ? stamp == null : now.equals(stamp)) {
      return false;
    }
    stamp = now;
    try {
      value = parse.apply(file);
      LOG.info("Read {} again: it has changed.", file);
      return true;
    } catch (IllegalArgumentException e) {
      LOG.error("Keeping what {} said before its last change. {}", file, e.getMessage());
      return false;
    }
  }
}
