package io.hayloft.pfs.read;

import java.io.Closeable;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileTime;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One file. When its servers forget an open handle and the name still means the same file, it is
 * opened again; else the reader is told that the file is another one now.
 *
 * <p>A close waits for no read: when one is under way, the last of them closes the file.
 */
public final class FileSource implements Source, Copy {
  private static final Logger LOG = LoggerFactory.getLogger(FileSource.class);

  /** An open file. */
  interface Handle extends Closeable {
    int read(ByteBuffer into, long position) throws IOException;

    long size() throws IOException;
  }

  /** Opens the file by its name. */
  interface Opener {
    Handle open(Path file) throws IOException;
  }

  /** What tells whether a name still means the file that was opened. */
  private record Identity(Object key, long length, FileTime modified) {
    static Identity of(Path file) throws IOException {
      BasicFileAttributes found = Files.readAttributes(file, BasicFileAttributes.class);
      return new Identity(found.fileKey(), found.size(), found.lastModifiedTime());
    }
  }

  private final Path file;
  private final Opener opener;
  private final Identity identity;
  private final long length;
  private final Object opening = new Object();
  private volatile Handle handle;
  // Guarded by `this`, under which no call to the mount is made.
  private int readers;
  private boolean closed;

  private FileSource(Path file, Opener opener) throws IOException {
    this.file = file;
    this.opener = opener;
    // Before it is opened: a file that takes its place meanwhile is never taken for it.
    this.identity = Identity.of(file);
    Handle opened = opener.open(file);
    try {
      this.length = opened.size();
    } catch (IOException e) {
      opened.close();
      throw e;
    }
    this.handle = opened;
  }

  /** Opens the file. */
  public static FileSource open(Path file) throws IOException {
    return open(file, FileSource::openChannel);
  }

  static FileSource open(Path file, Opener opener) throws IOException {
    return new FileSource(file, opener);
  }

  static Handle openChannel(Path file) throws IOException {
    FileChannel channel = FileChannel.open(file, StandardOpenOption.READ);
    return new Handle() {
      @Override
      public int read(ByteBuffer into, long position) throws IOException {
        return channel.read(into, position);
      }

      @Override
      public long size() throws IOException {
        return channel.size();
      }

      @Override
      public void close() throws IOException {
        channel.close();
      }
    };
  }

  @Override
  public void open() {
    // It is since it was made.
  }

  @Override
  public int read(ByteBuffer into, long position) throws IOException {
    if (position > Long.MAX_VALUE - into.remaining()) {
      // No file reaches there, and the system calls such a read an error.
      return -1;
    }
    enter();
    try {
      return readOpen(into, position);
    } finally {
      leave();
    }
  }

  private synchronized void enter() throws IOException {
    if (closed) {
      throw new ClosedChannelException();
    }
    readers++;
  }

  private void leave() {
    synchronized (this) {
      readers--;
      if (!closed || readers > 0) {
        return;
      }
    }
    closeQuietly(handle);
  }

  private int readOpen(ByteBuffer into, long position) throws IOException {
    boolean wasStale = false;
    while (true) {
      Handle used = handle;
      try {
        return used.read(into, position);
      } catch (ClosedByInterruptException e) {
        throw (IOException) new InterruptedIOException("interrupted: read " + file).initCause(e);
      } catch (ClosedChannelException e) {
        // Java closes the channel of a reader that is interrupted; the others go on.
        reopen(used, e);
      } catch (IOException e) {
        if (wasStale || !isStale(e)) {
          throw e;
        }
        wasStale = true;
        reopen(used, e);
      }
    }
  }

  /** What NFS and CephFS say of a handle without a file, and what GlusterFS says. */
  private static boolean isStale(IOException e) {
    String message = String.valueOf(e.getMessage());
    return message.endsWith("Stale file handle") || message.endsWith("No such file or directory");
  }

  private void reopen(Handle lost, IOException why) throws IOException {
    synchronized (opening) {
      if (handle != lost) {
        return;
      }
      Identity now;
      try {
        now = Identity.of(file);
      } catch (IOException e) {
        why.addSuppressed(e);
        now = null;
      }
      if (!identity.equals(now)) {
        throw new IOException(
            file + " was deleted or replaced while it was open; open it again", why);
      }
      LOG.warn("{}: its handle is lost, opening it again: {}", file, why.toString());
      handle = opener.open(file);
    }
    closeQuietly(lost);
  }

  /** Servers that forgot a handle may say so again. */
  private void closeQuietly(Handle lost) {
    try {
      lost.close();
    } catch (IOException e) {
      LOG.debug("closing a handle of {}", file, e);
    }
  }

  @Override
  public long length() {
    return length;
  }

  @Override
  public Copy current() {
    return this;
  }

  @Override
  public boolean moveOn(Copy failed, IOException why) {
    return false;
  }

  @Override
  public void close() throws IOException {
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
      if (readers > 0) {
        return;
      }
    }
    try {
      handle.close();
    } catch (IOException e) {
      if (!isStale(e)) {
        throw e;
      }
      LOG.debug("closing a stale handle of {}", file, e);
    }
  }
}
