package io.hayloft.pfs;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.InvalidPathException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** From paths of Hadoop to files below the root, and back. */
final class LocalPaths {
  private static final Logger LOG = LoggerFactory.getLogger(LocalPaths.class);

  private final java.nio.file.Path root;
  private final String scheme;
  private final String authority;
  private final AtomicBoolean warned = new AtomicBoolean();

  LocalPaths(java.nio.file.Path root, String scheme, String authority) {
    this.root = root;
    this.scheme = scheme;
    this.authority = authority;
  }

  java.nio.file.Path root() {
    return root;
  }

  /** The file of an absolute path. */
  java.nio.file.Path local(Path path) throws IOException {
    String name = path.toUri().getPath();
    if (name.indexOf('\0') >= 0) {
      throw new FileNotFoundException("a name has a NUL character: " + path);
    }
    try {
      java.nio.file.Path file = root.resolve("." + name).normalize();
      // Enough leading ".." would leave the root.
      if (!file.startsWith(root)) {
        throw new FileNotFoundException(path + " is above the root");
      }
      return file;
    } catch (InvalidPathException e) {
      throw (IOException)
          new FileNotFoundException(
                  path + " has characters that this Java cannot write: set LC_ALL=C.UTF-8")
              .initCause(e);
    }
  }

  /** The path of a file below the root. */
  Path hadoop(java.nio.file.Path file) {
    String name = "/" + root.relativize(file);
    // This constructor takes colons and newlines as they are.
    return new Path(scheme, authority, name);
  }

  /** The path of a child, or null if its name cannot be said in Hadoop's paths. */
  Path child(Path parent, java.nio.file.Path entry) {
    String name = entry.getFileName().toString();
    try {
      if (entry.resolveSibling(name).equals(entry)) {
        String above = parent.toUri().getPath();
        return new Path(scheme, authority, above.endsWith("/") ? above + name : above + "/" + name);
      }
    } catch (InvalidPathException e) {
      LOG.debug("{} has no name in this locale", entry, e);
    }
    if (warned.compareAndSet(false, true)) {
      LOG.warn(
          "{} has a name that is not UTF-8, so Hadoop cannot say it; listings leave out such"
              + " files. Rename them. If the name is fine, start Java with LC_ALL=C.UTF-8."
              + " This warning comes once.",
          entry);
    }
    return null;
  }
}
