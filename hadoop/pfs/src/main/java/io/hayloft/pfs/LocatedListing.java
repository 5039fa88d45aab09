package io.hayloft.pfs;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.RemoteIterator;

/** A listing with block locations, looked up for many files by one call of the provider. */
final class LocatedListing implements RemoteIterator<LocatedFileStatus> {
  private static final int PAGE = 500;

  private final PfsFileSystem fs;
  private final RemoteIterator<FileStatus> files;
  private final PathFilter filter;
  private final ArrayDeque<FileStatus> page = new ArrayDeque<>();

  LocatedListing(PfsFileSystem fs, RemoteIterator<FileStatus> files, PathFilter filter) {
    this.fs = fs;
    this.files = files;
    this.filter = filter;
  }

  @Override
  public boolean hasNext() throws IOException {
    while (page.isEmpty() && files.hasNext()) {
      List<FileStatus> read = new ArrayList<>();
      while (read.size() < PAGE && files.hasNext()) {
        FileStatus file = files.next();
        if (filter.accept(file.getPath())) {
          read.add(file);
        }
      }
      fs.prefetchLayouts(read);
      page.addAll(read);
    }
    return !page.isEmpty();
  }

  @Override
  public LocatedFileStatus next() throws IOException {
    if (!hasNext()) {
      throw new NoSuchElementException("the end of the listing");
    }
    FileStatus file = page.poll();
    BlockLocation[] blocks =
        file.isFile() ? fs.getFileBlockLocations(file, 0, file.getLen()) : null;
    return new LocatedFileStatus(file, blocks);
  }
}
