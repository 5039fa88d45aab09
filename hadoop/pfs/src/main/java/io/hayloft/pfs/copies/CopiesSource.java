package io.hayloft.pfs.copies;

import io.hayloft.pfs.read.FileSource;
import io.hayloft.pfs.read.Source;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A file with sealed copies: reads from the nearest, and from another when that one fails, is
 * missing, or is shorter than sealed.
 */
public final class CopiesSource implements Source {
  private static final Logger LOG = LoggerFactory.getLogger(CopiesSource.class);

  private final Path first;
  private final long length;
  private final List<Path> left;
  private volatile Source current;
  private boolean closed;

  private CopiesSource(Path first, long length, List<Path> candidates) throws IOException {
    this.first = first;
    this.length = length;
    this.left = new ArrayList<>(candidates);
    this.current = openNext(null);
  }

  /** Opens a file; one without a valid seal is read as it is. */
  public static Source open(Copies copies, Path file) throws IOException {
    CopyRecord seal = copies.enabled() ? copies.validSeal(file) : null;
    if (seal == null || seal.copies().isEmpty()) {
      return FileSource.open(file);
    }
    List<Path> candidates = new ArrayList<>(List.of(file));
    boolean firstIsLocal =
        copies.firstTarget(seal).filter(t -> t.host().equals(copies.localHost())).isPresent();
    for (Target target : copies.targetsOf(seal)) {
      boolean nearer = !firstIsLocal && target.host().equals(copies.localHost());
      candidates.add(nearer ? 0 : candidates.size(), copies.copy(target, seal));
    }
    return new CopiesSource(file, seal.length(), candidates);
  }

  @Override
  public int read(ByteBuffer into, long position) throws IOException {
    if (position >= length) {
      return -1;
    }
    while (true) {
      Source used = current;
      try {
        int got = used.read(into, position);
        if (got > 0) {
          return got;
        }
        moveOn(used, new IOException("ends at " + position + " of " + length + " bytes"), false);
      } catch (ClosedChannelException e) {
        // Another reader has moved on meanwhile, unless the stream is closed.
        if (used == current) {
          throw e;
        }
      } catch (IOException e) {
        moveOn(used, e, false);
      }
    }
  }

  @Override
  public Source current() {
    return current;
  }

  @Override
  public boolean moveOn(Source hung, IOException why) throws IOException {
    moveOn(hung, why, true);
    return true;
  }

  private synchronized void moveOn(Source failed, IOException why, boolean hung)
      throws IOException {
    if (failed != current || closed) {
      return;
    }
    LOG.warn("{}: a copy fails, reading another: {}", first, why.toString());
    Source next = openNext(why);
    current = next;
    if (hung) {
      // Closing waits for the reads that hang; there are no more such threads than copies.
      Thread closer = new Thread(() -> closeFailed(failed), "pfs-close-hung");
      closer.setDaemon(true);
      closer.start();
    } else {
      closeFailed(failed);
    }
  }

  private void closeFailed(Source failed) {
    try {
      failed.close();
    } catch (IOException e) {
      LOG.debug("closing a copy of {}", first, e);
    }
  }

  private Source openNext(IOException before) throws IOException {
    IOException last = before;
    while (!left.isEmpty()) {
      Path candidate = left.remove(0);
      try {
        Source source = FileSource.open(candidate);
        if (source.length() == length) {
          return source;
        }
        last = new IOException(candidate + " has " + source.length() + " bytes, not " + length);
        source.close();
      } catch (IOException e) {
        last = e;
      }
      LOG.warn("{}: a copy cannot be used: {}", first, last.toString());
    }
    throw new IOException(first + ": no copy is left to read; run pfs fsck on it", last);
  }

  @Override
  public long length() {
    return length;
  }

  @Override
  public synchronized void close() throws IOException {
    closed = true;
    current.close();
  }
}
