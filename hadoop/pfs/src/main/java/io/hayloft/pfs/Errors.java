package io.hayloft.pfs;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.channels.ClosedByInterruptException;
import java.nio.file.AccessDeniedException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileSystemException;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.util.Map;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.security.AccessControlException;

/** Makes Hadoop's exceptions of Java's, and says what to do where Java only names the error. */
final class Errors {
  /** What the C library says, and what helps. */
  private static final Map<String, String> ADVICE =
      Map.of(
          "No space left on device", "free space on the file system or add servers",
          "Disk quota exceeded", "free space below the quota or have it raised",
          "Read-only file system", "mount it writable, or see why the kernel made it read-only",
          "Stale file handle", "the file was replaced on a server: open it again, else mount again",
          "Input/output error", "a server of the file system failed: see its log",
          "Transport endpoint is not connected", "the mount's own process died: mount again",
          "File name too long", "use names of at most 255 bytes",
          "Too many open files", "close streams, or raise the limit (ulimit -n)");

  private Errors() {}

  /** The exception to throw for {@code path}; {@code e} is its cause. */
  static IOException of(Path path, IOException e) {
    IOException made = make(path, e);
    return made == e ? e : (IOException) made.initCause(e);
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
    String advice = advice(e);
    return advice == null ? e : new IOException(path + ": " + advice);
  }

  /** "Reason: what to do", or null for an error without advice. */
  private static String advice(IOException e) {
    String message = e.getMessage();
    if (message == null) {
      return null;
    }
    for (Map.Entry<String, String> known : ADVICE.entrySet()) {
      if (message.endsWith(known.getKey())) {
        return known.getKey() + ": " + known.getValue();
      }
    }
    return null;
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
