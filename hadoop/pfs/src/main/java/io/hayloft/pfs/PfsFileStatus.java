package io.hayloft.pfs;

import java.io.IOException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/** A status that remembers which inode it is of. */
final class PfsFileStatus extends FileStatus {
  private static final long serialVersionUID = 1;

  private final long inode;

  PfsFileStatus(
      Attributes attributes,
      java.nio.file.Path file,
      Path path,
      Path symlink,
      int copies,
      long blockSize)
      throws IOException {
    super(
        attributes.length(),
        attributes.isDirectory(),
        attributes.isDirectory() ? 0 : copies,
        attributes.isDirectory() ? 0 : blockSize,
        attributes.modifiedMs(),
        attributes.accessedMs(),
        attributes.permission(),
        attributes.owner(file),
        attributes.group(file),
        symlink,
        path,
        false,
        false,
        false);
    this.inode = attributes.inode();
  }

  long inode() {
    return inode;
  }
}
