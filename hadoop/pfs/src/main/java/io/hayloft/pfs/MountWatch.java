package io.hayloft.pfs;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/** Sees, at most once a second, whether the root is still the file system it was. */
final class MountWatch {
  private static final long EVERY_NS = TimeUnit.SECONDS.toNanos(1);

  private final Path root;
  private volatile Object device;
  private volatile long checkedNs;

  /** Checks a first time. */
  MountWatch(Path root) throws IOException {
    this.root = root;
    MountCheck.check(root);
    device = Files.getAttribute(root, "unix:dev");
    checkedNs = System.nanoTime();
  }

  /** Throws if the mount is gone, since what is there now is a directory of this host. */
  void check() throws IOException {
    if (System.nanoTime() - checkedNs < EVERY_NS) {
      return;
    }
    Object now = Files.getAttribute(root, "unix:dev");
    if (!now.equals(device)) {
      MountCheck.check(root);
      device = now;
    }
    checkedNs = System.nanoTime();
  }
}
