package io.hayloft.pfs.read;

import java.io.IOException;
import java.nio.ByteBuffer;

/** One file with the bytes of a {@link Source}. Its calls block for as long as the mount does. */
public interface Copy {
  /** Opens it, unless it is open. */
  void open() throws IOException;

  /** Reads up to the room of {@code into}; gives the number of bytes, -1 at the end. */
  int read(ByteBuffer into, long position) throws IOException;
}
