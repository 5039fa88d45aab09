package io.hayloft.pfs;

import io.hayloft.pfs.io.TimeLimit;
import java.io.Closeable;
import java.io.IOException;
import java.lang.ref.Cleaner;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.RemoteIterator;

/** The files of a directory, some hundreds at a time, so a large directory needs little memory. */
final class Listing implements RemoteIterator<FileStatus>, Closeable {
  private static final int PAGE = 500;

  /** Closes the directory of a listing that its reader left half-way. */
  private static final Cleaner CLEANER = Cleaner.create();

  private final TimeLimit limit;
  private final String name;
  private final Statuses statuses;
  private final Open open;
  private final Cleaner.Cleanable cleanable;
  private final ArrayDeque<FileStatus> page = new ArrayDeque<>();
  private boolean ended;

  /** Makes the status of an entry; null leaves it out. */
  @FunctionalInterface
  interface Statuses {
    FileStatus of(Path entry) throws IOException;
  }

  /** The open directory, apart from the listing so that the cleaner can hold it. */
  private record Open(DirectoryStream<Path> stream, Iterator<Path> entries) implements Runnable {
    @Override
    public void run() {
      try {
        stream.close();
      } catch (IOException e) {
        // A directory was only read; there is nothing to lose.
      }
    }
  }

  private Listing(TimeLimit limit, String name, Statuses statuses, Open open) {
    this.limit = limit;
    this.name = name;
    this.statuses = statuses;
    this.open = open;
    this.cleanable = CLEANER.register(this, open);
  }

  /** Opens the directory. */
  static Listing of(TimeLimit limit, String name, Path directory, Statuses statuses)
      throws IOException {
    DirectoryStream<Path> stream =
        limit.run("list " + name, () -> Files.newDirectoryStream(directory));
    return new Listing(limit, name, statuses, new Open(stream, stream.iterator()));
  }

  @Override
  public boolean hasNext() throws IOException {
    while (page.isEmpty() && !ended) {
      List<FileStatus> read = limit.runLong("list " + name, this::readPage);
      page.addAll(read);
      if (ended) {
        close();
      }
    }
    return !page.isEmpty();
  }

  private List<FileStatus> readPage(TimeLimit.Ticks ticks) throws IOException {
    List<FileStatus> read = new ArrayList<>(PAGE);
    try {
      while (read.size() < PAGE) {
        if (!open.entries().hasNext()) {
          ended = true;
          break;
        }
        ticks.tick();
        FileStatus status = statuses.of(open.entries().next());
        if (status != null) {
          read.add(status);
        }
      }
    } catch (DirectoryIteratorException e) {
      throw e.getCause();
    }
    return read;
  }

  @Override
  public FileStatus next() throws IOException {
    if (!hasNext()) {
      throw new NoSuchElementException("the end of " + name);
    }
    return page.poll();
  }

  @Override
  public void close() {
    ended = true;
    cleanable.clean();
  }
}
