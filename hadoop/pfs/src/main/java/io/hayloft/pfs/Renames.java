package io.hayloft.pfs;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The two renames of Hadoop: one answers false where HDFS does, the other throws. */
final class Renames {
  private static final Logger LOG = LoggerFactory.getLogger(Renames.class);

  private final Path root;
  private final Replaced replaced;

  /** Learns of a file that a rename is about to replace. */
  @FunctionalInterface
  interface Replaced {
    /** Gives what to do once the file is replaced. */
    Runnable replacing(Path file) throws IOException;
  }

  Renames(Path root, Replaced replaced) {
    this.root = root;
    this.replaced = replaced;
  }

  /** The older rename: an existing directory takes the source in; other refusals are false. */
  boolean rename(Path from, Path to) throws IOException {
    Attributes source = Attributes.findLink(from);
    if (source == null || from.equals(root)) {
      return refuse(from, to, "the source does not exist or is the root");
    }
    if (from.equals(to)) {
      return !source.isDirectory();
    }
    Attributes target = Attributes.find(to);
    Path last = to;
    if (target != null && target.isDirectory()) {
      last = to.resolve(from.getFileName());
      target = Attributes.findLink(last);
    }
    if (target != null || last.equals(from)) {
      return last.equals(from) && !source.isDirectory()
          || refuse(from, last, "the destination exists");
    }
    if (last.startsWith(from)) {
      return refuse(from, last, "the destination is within the source");
    }
    Attributes parent = Attributes.find(last.getParent());
    if (parent == null || !parent.isDirectory()) {
      return refuse(from, last, "the destination's parent is no directory");
    }
    try {
      moveToFree(from, last, source);
      return true;
    } catch (java.nio.file.FileAlreadyExistsException e) {
      return refuse(from, last, "another process created the destination");
    }
  }

  private static boolean refuse(Path from, Path to, String why) {
    LOG.debug("not renamed, {} to {}: {}", from, to, why);
    return false;
  }

  /** The newer rename: each refusal is an exception of its own. */
  void renameOrThrow(Path from, Path to, boolean overwrite) throws IOException {
    Attributes source = Attributes.findLink(from);
    if (source == null) {
      throw new FileNotFoundException("rename source " + from + " does not exist");
    }
    if (from.equals(root) || to.equals(root)) {
      throw new IOException("the root cannot be renamed or replaced");
    }
    if (from.equals(to)) {
      throw new FileAlreadyExistsException("source and destination are both " + from);
    }
    if (to.startsWith(from)) {
      throw new IOException("rename destination " + to + " is within the source " + from);
    }
    Attributes parent = Attributes.find(to.getParent());
    if (parent == null) {
      throw new FileNotFoundException("rename destination's parent does not exist: " + to);
    }
    if (!parent.isDirectory()) {
      throw new ParentNotDirectoryException("rename destination's parent is a file: " + to);
    }
    Attributes target = Attributes.findLink(to);
    if (target == null && !overwrite) {
      moveToFree(from, to, source);
      return;
    }
    if (target != null) {
      checkReplaceable(from, source, to, target, overwrite);
    }
    Runnable afterwards = replaced.replacing(to);
    Files.move(from, to, StandardCopyOption.ATOMIC_MOVE);
    afterwards.run();
  }

  private static void checkReplaceable(
      Path from, Attributes source, Path to, Attributes target, boolean overwrite)
      throws IOException {
    if (source.isDirectory() != target.isDirectory()) {
      throw new IOException(
          "source " + from + " and destination " + to + " must both be files or directories");
    }
    if (!overwrite) {
      throw new FileAlreadyExistsException("rename destination " + to + " exists");
    }
    if (target.isDirectory() && !Directories.isEmpty(to)) {
      throw new IOException("rename destination " + to + " is a directory with files");
    }
  }

  /**
   * Moves to a name that is free, and fails when another process takes it first. The system's
   * rename would replace that process's file, so a file gets its second name first, which the
   * system refuses if the name is taken, and loses the first one then.
   */
  private static void moveToFree(Path from, Path to, Attributes source) throws IOException {
    if (source.kind() == Attributes.Kind.FILE && linked(from, to)) {
      try {
        Files.delete(from);
      } catch (IOException e) {
        Files.deleteIfExists(to);
        throw e;
      }
      return;
    }
    // The system itself refuses to replace a directory that has files.
    Files.move(from, to, StandardCopyOption.ATOMIC_MOVE);
  }

  /** Whether the file has the second name now; false where the file system has no such thing. */
  private static boolean linked(Path from, Path to) throws IOException {
    try {
      Files.createLink(to, from);
      return true;
    } catch (java.nio.file.FileAlreadyExistsException e) {
      throw e;
    } catch (IOException | UnsupportedOperationException e) {
      LOG.debug("no second name for {}: renamed without it", from, e);
      return false;
    }
  }
}
