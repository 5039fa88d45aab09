package io.hayloft.pfs;

import io.hayloft.pfs.io.TimeLimit.Ticks;
import java.io.IOException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;

/** Deletes files and trees; never what a link leads to, and never the root. */
final class Deletes {
  private final Path root;
  private final Renames.Replaced going;

  /** {@code going} learns of each file before it is deleted. */
  Deletes(Path root, Renames.Replaced going) {
    this.root = root;
    this.going = going;
  }

  /** Returns false if there was nothing to delete, or if it is the root. */
  boolean delete(Path path, boolean recursive, Ticks ticks) throws IOException {
    Attributes attributes = Attributes.findLink(path);
    if (attributes == null) {
      return false;
    }
    if (path.equals(root)) {
      if (!recursive && !Directories.isEmpty(root)) {
        throw new PathIsNotEmptyDirectoryException(root.toString());
      }
      return false;
    }
    if (!attributes.isDirectory()) {
      return deleteFile(path);
    }
    if (recursive) {
      deleteTree(path, ticks);
    } else {
      Files.delete(path);
    }
    return true;
  }

  private boolean deleteFile(Path file) throws IOException {
    Runnable afterwards = going.replacing(file);
    boolean deleted = Files.deleteIfExists(file);
    if (deleted) {
      afterwards.run();
    }
    return deleted;
  }

  private void deleteTree(Path top, Ticks ticks) throws IOException {
    Files.walkFileTree(
        top,
        new SimpleFileVisitor<>() {
          @Override
          public FileVisitResult visitFile(Path file, BasicFileAttributes attributes)
              throws IOException {
            ticks.tick();
            deleteFile(file);
            return FileVisitResult.CONTINUE;
          }

          @Override
          public FileVisitResult visitFileFailed(Path file, IOException e) throws IOException {
            if (e instanceof NoSuchFileException) {
              return FileVisitResult.CONTINUE;
            }
            throw e;
          }

          @Override
          public FileVisitResult postVisitDirectory(Path directory, IOException e)
              throws IOException {
            if (e != null) {
              throw e;
            }
            ticks.tick();
            Files.deleteIfExists(directory);
            return FileVisitResult.CONTINUE;
          }
        });
  }
}
