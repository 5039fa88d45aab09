package io.hayloft.pfs.copies;

import io.hayloft.pfs.io.Limits;
import io.hayloft.pfs.io.Recent;
import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/**
 * How many copies the files of a directory have, and where: attributes {@code copies} and {@code
 * layout} of the directory or of the nearest one above that has any, else the configuration.
 */
final class Policies {
  static final String COPIES = "copies";
  static final String LAYOUT = "layout";

  private static final int COPIES_MAX = 16;
  private static final int CACHED_MAX = 1_000;
  private static final long KEPT_NS = TimeUnit.SECONDS.toNanos(10);

  private final Path root;
  private final Policy byDefault;

  record Policy(int copies, CopyLayout layout) {}

  private final Recent<Path, Policy> cache = new Recent<>(CACHED_MAX);

  Policies(Path root, int copies, String layout) {
    this.root = root;
    this.byDefault = new Policy(checked(copies, "fs.pfs.copies"), CopyLayout.of(layout));
  }

  private static int checked(int copies, String where) {
    return (int) Limits.checked(where, copies, 1, COPIES_MAX);
  }

  Policy of(Path directory) throws IOException {
    Policy policy = cache.get(directory);
    if (policy == null) {
      policy = read(directory);
      cache.put(directory, policy, KEPT_NS);
    }
    return policy;
  }

  private Policy read(Path directory) throws IOException {
    for (Path at = directory; at != null && at.startsWith(root); at = at.getParent()) {
      try {
        String copies = Attribute.read(at, COPIES);
        if (copies != null) {
          String layout = Attribute.read(at, LAYOUT);
          return parse(at, copies, layout);
        }
      } catch (NoSuchFileException e) {
        // The directory will be created; one above has the say.
      }
    }
    return byDefault;
  }

  private Policy parse(Path directory, String copies, String layout) throws IOException {
    try {
      return new Policy(
          checked(Integer.parseInt(copies.trim()), "the attribute"),
          layout == null ? byDefault.layout() : CopyLayout.of(layout));
    } catch (IllegalArgumentException e) {
      throw new IOException(
          "the attributes user.hayloft.pfs.copies and .layout of "
              + directory
              + " are wrong: "
              + e.getMessage(),
          e);
    }
  }
}
