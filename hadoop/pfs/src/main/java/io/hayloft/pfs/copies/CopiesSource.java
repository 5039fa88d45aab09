package io.hayloft.pfs.copies;

import io.hayloft.pfs.read.Copy;
import io.hayloft.pfs.read.FileSource;
import io.hayloft.pfs.read.Source;
import java.io.Closeable;
import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A file with sealed copies: reads from the nearest, and from another when that one fails, hangs,
 * is missing, or is shorter than sealed.
 */
public final class CopiesSource implements Source {
  private static final Logger LOG = LoggerFactory.getLogger(CopiesSource.class);

  private final Copies copies;
  private final Path first;
  private final CopyRecord seal;
  private final SealedCopy.Opener opener;
  private final Consumer<Closeable> closer;
  private final List<Path> left;
  private volatile SealedCopy current;
  // Guarded by `this`, under which no call to the mount is made.
  private Path lastOpened;
  private boolean closed;

  private CopiesSource(
      Copies copies,
      Path first,
      CopyRecord seal,
      SealedCopy.Opener opener,
      Consumer<Closeable> closer) {
    this.copies = copies;
    this.first = first;
    this.seal = seal;
    this.opener = opener;
    this.closer = closer;
    this.left = candidates();
    this.current = new SealedCopy(left.remove(0), seal.length(), opener, () -> {});
  }

  /**
   * Opens a file; one without a valid seal is read as it is. Of one with a seal, the first call
   * opens a copy. The closer closes copies that failed, without a wait.
   */
  public static Source open(Copies copies, Path file, Consumer<Closeable> closer)
      throws IOException {
    return open(copies, file, FileSource::open, closer);
  }

  static Source open(
      Copies copies, Path file, SealedCopy.Opener opener, Consumer<Closeable> closer)
      throws IOException {
    CopyRecord seal = copies.enabled() ? copies.validSeal(file) : null;
    if (seal == null || seal.copies().isEmpty()) {
      return opener.open(file);
    }
    return new CopiesSource(copies, file, seal, opener, closer);
  }

  private List<Path> candidates() {
    List<Path> candidates = new ArrayList<>(List.of(first));
    boolean firstIsLocal =
        copies.firstTarget(seal).filter(t -> t.host().equals(copies.localHost())).isPresent();
    for (Target target : copies.targetsOf(seal)) {
      boolean nearer = !firstIsLocal && target.host().equals(copies.localHost());
      candidates.add(nearer ? 0 : candidates.size(), copies.copy(target, seal));
    }
    return candidates;
  }

  @Override
  public Copy current() {
    return current;
  }

  @Override
  public synchronized boolean moveOn(Copy failed, IOException why) throws IOException {
    if (closed) {
      throw new ClosedChannelException();
    }
    SealedCopy last = current;
    if (failed != last) {
      return true;
    }
    if (last.wasOpened()) {
      lastOpened = last.path();
    }
    if (left.isEmpty()) {
      if (!last.wasOpened() && lastOpened != null) {
        // It failed at some bytes, and may have the others.
        current = another(lastOpened);
      }
      throw new IOException(first + ": no copy is left to read; run pfs fsck on it", why);
    }
    LOG.warn("{}: a copy fails, reading another: {}", first, why.toString());
    current = another(left.remove(0));
    closer.accept(last);
    return true;
  }

  /** Later than the seal was read: the name of the first may mean another file by now. */
  private SealedCopy another(Path path) {
    return new SealedCopy(
        path,
        seal.length(),
        opener,
        () -> {
          if (path.equals(first) && !copies.isStillSealed(first, seal)) {
            throw new IOException(
                first + " was replaced or changed while it was open; open it again");
          }
        });
  }

  @Override
  public long length() {
    return seal.length();
  }

  @Override
  public void close() throws IOException {
    SealedCopy last;
    synchronized (this) {
      closed = true;
      last = current;
    }
    last.close();
  }
}
