package io.hayloft.pfs;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Symbolic links, relative on the disk, so that they hold wherever a host mounts the root. */
final class Links {
  private final LocalPaths paths;

  Links(LocalPaths paths) {
    this.paths = paths;
  }

  void create(org.apache.hadoop.fs.Path target, Path link) throws IOException {
    if (!target.isAbsolute()) {
      Files.createSymbolicLink(link, Path.of(target.toString()));
      return;
    }
    Path file = paths.local(target);
    Files.createSymbolicLink(link, link.getParent().relativize(file));
  }

  /** What a link leads to, as a path of Hadoop; one that leaves the root has the scheme file. */
  org.apache.hadoop.fs.Path target(Path link) throws IOException {
    Path file = link.resolveSibling(Files.readSymbolicLink(link)).normalize();
    if (file.startsWith(paths.root())) {
      return paths.hadoop(file);
    }
    return new org.apache.hadoop.fs.Path("file", null, file.toString());
  }
}
