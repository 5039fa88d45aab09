package io.hayloft.pfs.read;

import java.io.Closeable;
import java.io.IOException;

/** A file open for reading, which may have copies. Threads may share it. */
public interface Source extends Closeable {
  /** The length when it was opened; the file may have grown since. */
  long length();

  /** What it reads from now. */
  Copy current();

  /**
   * Goes over to another copy since {@code failed} fails or hangs, unless another reader has done
   * so already; false if the file has no copies. Throws when none is left. It does not touch the
   * mount, so no caller waits.
   */
  boolean moveOn(Copy failed, IOException why) throws IOException;
}
