package io.hayloft.pfs;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.EnumSet;
import java.util.Set;
import org.apache.hadoop.fs.permission.FsPermission;

/** Hadoop's permissions as modes of files. */
final class Permissions {
  private static final int STICKY = 01000;

  /** Bits that the process's own umask takes from what it creates. */
  private static final int UMASK = readUmask();

  private Permissions() {}

  /** For creating a file with this mode; {@link #complete} sets what the system left out. */
  static FileAttribute<Set<PosixFilePermission>> forCreate(FsPermission permission) {
    int mode = permission.toShort();
    EnumSet<PosixFilePermission> set = EnumSet.noneOf(PosixFilePermission.class);
    // Declared from the owner's read bit, 0400, to others' execute bit, 0001.
    PosixFilePermission[] all = PosixFilePermission.values();
    for (int at = 0; at < all.length; at++) {
      if ((mode & (0400 >> at)) != 0) {
        set.add(all[at]);
      }
    }
    return PosixFilePermissions.asFileAttribute(set);
  }

  /** Gives a file just created the bits that the umask took. */
  static void complete(Path file, FsPermission permission) throws IOException {
    if ((permission.toShort() & (UMASK | STICKY)) != 0) {
      set(file, permission);
    }
  }

  static void set(Path file, FsPermission permission) throws IOException {
    Files.setAttribute(file, "unix:mode", (int) permission.toShort());
  }

  private static int readUmask() {
    try {
      for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
        if (line.startsWith("Umask:")) {
          return Integer.parseInt(line.substring("Umask:".length()).trim(), 8) & 0777;
        }
      }
    } catch (IOException | NumberFormatException e) {
      // Then every file has its mode set once more.
      return 0777;
    }
    return 0777;
  }
}
