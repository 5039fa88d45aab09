package io.hayloft.pfs;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Sees whether the root is a mount point. Without it, a job on a host whose mount failed would
 * find an empty directory, fill the host's own disk, and call that success.
 */
final class MountCheck {
  private static final Path MOUNTS = Path.of("/proc/self/mountinfo");

  /** Fields of a line of mountinfo up to the mount point, which is the last of them. */
  private static final int FIELDS = 5;

  private MountCheck() {}

  static void check(Path root) throws IOException {
    if (!Files.isDirectory(root)) {
      throw new IOException(
          root + " of " + PfsKeys.ROOT + " is no directory: mount the parallel file system there");
    }
    if (!isMountPoint(root)) {
      throw new IOException(
          root
              + " of "
              + PfsKeys.ROOT
              + " is not mounted, so what is written there would stay on this host: mount the"
              + " parallel file system, or set "
              + PfsKeys.MUST_BE_MOUNT
              + " to false if it is meant to be a plain directory");
    }
  }

  static boolean isMountPoint(Path root) throws IOException {
    Path real = root.toRealPath();
    Path parent = real.getParent();
    if (parent == null) {
      return true;
    }
    Object here = Files.getAttribute(real, "unix:dev");
    Object above = Files.getAttribute(parent, "unix:dev");
    // A bind mount of the same device has the same number, so the table has the last word.
    return !here.equals(above) || isListed(real);
  }

  private static boolean isListed(Path real) throws IOException {
    if (!Files.isReadable(MOUNTS)) {
      return false;
    }
    // Latin 1 keeps each byte, whatever the encoding of names.
    String wanted = new String(real.toString().getBytes(StandardCharsets.UTF_8),
        StandardCharsets.ISO_8859_1);
    try (var lines = Files.lines(MOUNTS, StandardCharsets.ISO_8859_1)) {
      return lines.anyMatch(
          line -> {
            String[] fields = line.split(" ", FIELDS + 1);
            return fields.length > FIELDS && unescape(fields[FIELDS - 1]).equals(wanted);
          });
    }
  }

  /** The kernel writes space, tab, newline and backslash as three octal digits. */
  static String unescape(String field) {
    StringBuilder text = new StringBuilder();
    for (int at = 0; at < field.length(); at++) {
      char c = field.charAt(at);
      if (c == '\\' && field.substring(at + 1).matches("(?s)[0-7]{3}.*")) {
        text.append((char) Integer.parseInt(field.substring(at + 1, at + 4), 8));
        at += 3;
      } else {
        text.append(c);
      }
    }
    return text.toString();
  }
}
