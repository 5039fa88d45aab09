package io.hayloft.pfs;

import io.hayloft.pfs.io.Advice;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.channels.ClosedByInterruptException;
import java.nio.file.AccessDeniedException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileSystemException;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.security.AccessControlException;

/** Makes Hadoop's exceptions of Java's. */
final class Errors {
  private Errors() {}

  /** The exception to throw for {@code path}; {@code e} is its cause. */
  static IOException of(Path path, IOException e) {
    IOException made = make(path, e);
    return made == e || made.getCause() != null ? made : (IOException) made.initCause(e);
  }

  private static IOException make(Path path, IOException e) {
    if (e instanceof NoSuchFileException) {
      return new FileNotFoundException(path + " does not exist");
    }
    if (e instanceof AccessDeniedException) {
      return new AccessControlException("permission denied: " + path);
    }
    if (e instanceof java.nio.file.FileAlreadyExistsException) {
      return new FileAlreadyExistsException(path + " already exists");
    }
    if (e instanceof DirectoryNotEmptyException) {
      return new PathIsNotEmptyDirectoryException(path.toString());
    }
    if (e instanceof NotDirectoryException || isNotDirectory(e)) {
      return new ParentNotDirectoryException("a parent is no directory: " + path);
    }
    if (e instanceof ClosedByInterruptException) {
      return new java.io.InterruptedIOException("interrupted: " + path);
    }
    return Advice.on(path.toString(), e);
  }

  static boolean isNotDirectory(IOException e) {
    return e instanceof FileSystemException
        && "Not a directory".equals(((FileSystemException) e).getReason());
  }

  /** Whether the path, or something above it, is not there. */
  static boolean isAbsent(IOException e) {
    return e instanceof NoSuchFileException || isNotDirectory(e);
  }
}
