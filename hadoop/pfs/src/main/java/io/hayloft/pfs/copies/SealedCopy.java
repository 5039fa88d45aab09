package io.hayloft.pfs.copies;

import io.hayloft.pfs.read.Copy;
import io.hayloft.pfs.read.Source;
import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.file.Path;

/**
 * One copy of a sealed file. Its first call opens it, so an open that hangs is met like a read
 * that does. A close waits for neither.
 */
final class SealedCopy implements Copy, Closeable {
  /** Opens a file; tests have files that hang. */
  interface Opener {
    Source open(Path file) throws IOException;
  }

  /** Throws unless the file just opened is the one that the seal means. */
  interface Check {
    void run() throws IOException;
  }

  private final Path path;
  private final long length;
  private final Opener opener;
  private final Check check;
  private final Object opening = new Object();
  private volatile Source opened;
  // Guarded by `this`, under which no call to the mount is made.
  private boolean closed;

  SealedCopy(Path path, long length, Opener opener, Check check) {
    this.path = path;
    this.length = length;
    this.opener = opener;
    this.check = check;
  }

  Path path() {
    return path;
  }

  boolean wasOpened() {
    return opened != null;
  }

  @Override
  public void open() throws IOException {
    if (opened != null) {
      return;
    }
    synchronized (opening) {
      if (opened == null) {
        openChecked();
      }
    }
  }

  private void openChecked() throws IOException {
    boolean kept = false;
    Source fresh = opener.open(path);
    try {
      if (fresh.length() != length) {
        throw new IOException(path + " has " + fresh.length() + " bytes, not " + length);
      }
      check.run();
      keep(fresh);
      kept = true;
    } finally {
      if (!kept) {
        fresh.close();
      }
    }
  }

  private synchronized void keep(Source fresh) throws IOException {
    if (closed) {
      throw new ClosedChannelException();
    }
    opened = fresh;
  }

  @Override
  public int read(ByteBuffer into, long position) throws IOException {
    long left = length - position;
    if (left <= 0) {
      return -1;
    }
    if (!into.hasRemaining()) {
      return 0;
    }
    open();
    int limit = into.limit();
    // A writer may append to the copies meanwhile; those bytes are not the sealed file's.
    into.limit((int) Math.min(limit, into.position() + left));
    try {
      int got = opened.current().read(into, position);
      if (got > 0) {
        return got;
      }
    } finally {
      into.limit(limit);
    }
    throw new IOException(path + " ends at " + position + " of " + length + " bytes");
  }

  @Override
  public void close() throws IOException {
    synchronized (this) {
      closed = true;
    }
    if (opened != null) {
      opened.close();
    }
  }
}
