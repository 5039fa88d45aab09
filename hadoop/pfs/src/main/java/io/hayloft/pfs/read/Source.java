package io.hayloft.pfs.read;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;

/** Bytes of an open file. Reads block for as long as the mount does; threads may share it. */
public interface Source extends Closeable {
  /** Reads up to the room of {@code into}; gives the number of bytes, -1 at the end. */
  int read(ByteBuffer into, long position) throws IOException;

  /** The length when it was opened; the file may have grown since. */
  long length();

  /** What it reads from now: itself, or one of its copies. */
  default Source current() {
    return this;
  }

  /**
   * Goes over to another copy since {@code hung} fails, unless another reader has done so already;
   * false if there is none.
   */
  default boolean moveOn(Source hung, IOException why) throws IOException {
    return false;
  }
}
