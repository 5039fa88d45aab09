package io.hayloft.pfs;

import io.hayloft.pfs.write.Sink;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Set;
import java.util.UUID;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Creates and opens files to write. A file is created by the system's exclusive create, so of two
 * creators one fails. To replace a file, a new one takes its name: readers of the old one read on,
 * and two writers never mix their bytes.
 */
final class Creation {
  private static final String TEMPORARY = ".pfs-";

  private final Path root;
  private final Renames.Replaced replaced;

  Creation(Path root, Renames.Replaced replaced) {
    this.root = root;
    this.replaced = replaced;
  }

  /** What a caller asks for. */
  record Wanted(FsPermission permission, boolean overwrite, boolean withParents) {}

  /** Creates the file, open to write from its start. */
  Sink create(Path file, Wanted wanted) throws IOException {
    if (file.equals(root)) {
      throw new FileAlreadyExistsException("the root is a directory");
    }
    try {
      return createNew(file, wanted.permission());
    } catch (NoSuchFileException e) {
      if (!wanted.withParents()) {
        throw parentMissing(file, e);
      }
      Directories.createAll(root, file.getParent(), parentPermission(wanted.permission()));
      return createNew(file, wanted.permission());
    } catch (java.nio.file.FileAlreadyExistsException e) {
      return replace(file, wanted);
    }
  }

  private static IOException parentMissing(Path file, IOException e) {
    return (IOException)
        new FileNotFoundException("the parent directory of " + file + " does not exist")
            .initCause(e);
  }

  /** A directory that holds a file can be searched by those who may read the file. */
  private static FsPermission parentPermission(FsPermission file) {
    int read = file.toShort() & 0444;
    return new FsPermission((short) (file.toShort() & 0777 | read >> 2 | 0700));
  }

  static Sink createNew(Path file, FsPermission permission) throws IOException {
    Set<StandardOpenOption> options =
        Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
    FileChannel channel = FileChannel.open(file, options, Permissions.forCreate(permission));
    try {
      Permissions.complete(file, permission);
      return new Sink(channel, file);
    } catch (IOException e) {
      channel.close();
      Files.deleteIfExists(file);
      throw e;
    }
  }

  private Sink replace(Path file, Wanted wanted) throws IOException {
    if (!wanted.overwrite()) {
      throw new java.nio.file.FileAlreadyExistsException(file.toString());
    }
    Path real = Files.isSymbolicLink(file) ? file.toRealPath() : file;
    if (Files.isDirectory(real)) {
      throw new FileAlreadyExistsException(file + " is a directory");
    }
    Path temporary = real.resolveSibling(TEMPORARY + UUID.randomUUID());
    Sink sink = createNew(temporary, wanted.permission());
    try {
      Runnable afterwards = replaced.replacing(real);
      Files.move(temporary, real, StandardCopyOption.ATOMIC_MOVE);
      afterwards.run();
      return new Sink(sink.channel(), real);
    } catch (IOException e) {
      sink.close();
      Files.deleteIfExists(temporary);
      throw e;
    }
  }

  /** Opens the file to write behind its end. */
  static Sink append(Path file) throws IOException {
    if (Attributes.of(file).isDirectory()) {
      throw new FileAlreadyExistsException(file + " is a directory: nothing can be appended");
    }
    Set<StandardOpenOption> options = Set.of(StandardOpenOption.APPEND, StandardOpenOption.WRITE);
    FileChannel channel = FileChannel.open(file, options);
    try {
      return new Sink(channel, file, channel.size());
    } catch (IOException e) {
      channel.close();
      throw e;
    }
  }
}
