package io.hayloft.pfs;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayDeque;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.permission.FsPermission;

/** Creates directories. */
final class Directories {
  /** What the maker of a directory needs in it to go on. */
  private static final int OWNER_WRITE_SEARCH = 0300;

  private Directories() {}

  /** Creates the directory and those above it; one that is there already is fine. */
  static void createAll(Path root, Path directory, FsPermission permission) throws IOException {
    ArrayDeque<Path> missing = new ArrayDeque<>();
    Path at = directory;
    while (!at.equals(root) && !isDirectory(at, at.equals(directory))) {
      missing.push(at);
      at = at.getParent();
    }
    FsPermission above = new FsPermission((short) (permission.toShort() | OWNER_WRITE_SEARCH));
    while (!missing.isEmpty()) {
      Path next = missing.pop();
      try {
        createOne(next, missing.isEmpty() ? permission : above);
      } catch (java.nio.file.FileAlreadyExistsException e) {
        // Another process was faster, which is as good.
        if (!isDirectory(next, missing.isEmpty())) {
          throw e;
        }
      }
    }
  }

  /** False if nothing is there; throws if it is a file, the wanted one or one above. */
  private static boolean isDirectory(Path path, boolean wanted) throws IOException {
    try {
      if (Attributes.of(path).isDirectory()) {
        return true;
      }
    } catch (NoSuchFileException e) {
      if (Files.isSymbolicLink(path)) {
        throw new FileAlreadyExistsException(path + " is a link to nothing");
      }
      return false;
    } catch (IOException e) {
      if (Errors.isNotDirectory(e)) {
        return false;
      }
      throw e;
    }
    String message = path + " is no directory";
    throw wanted
        ? new FileAlreadyExistsException(message)
        : new ParentNotDirectoryException(message);
  }

  static boolean isEmpty(Path directory) throws IOException {
    try (DirectoryStream<Path> children = Files.newDirectoryStream(directory)) {
      return !children.iterator().hasNext();
    }
  }

  static void createOne(Path directory, FsPermission permission) throws IOException {
    Files.createDirectory(directory, Permissions.forCreate(permission));
    Permissions.complete(directory, permission);
  }
}
