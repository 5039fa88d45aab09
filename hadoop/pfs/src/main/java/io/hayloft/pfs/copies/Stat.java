package io.hayloft.pfs.copies;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.Map;

/** What copies need to know of a file. */
record Stat(long inode, long length, long modifiedMs, int mode, int uid, int links, boolean file) {
  private static final String WANTED =
      "unix:ino,size,lastModifiedTime,mode,uid,nlink,isRegularFile";

  /** Of the name itself, not of what a link leads to. */
  static Stat of(Path file) throws IOException {
    Map<String, Object> got = Files.readAttributes(file, WANTED, LinkOption.NOFOLLOW_LINKS);
    return new Stat(
        (Long) got.get("ino"),
        (Long) got.get("size"),
        ((FileTime) got.get("lastModifiedTime")).toMillis(),
        (Integer) got.get("mode"),
        (Integer) got.get("uid"),
        (Integer) got.get("nlink"),
        (Boolean) got.get("isRegularFile"));
  }

  /** Null if there is no such file. */
  static Stat find(Path file) throws IOException {
    try {
      return of(file);
    } catch (NoSuchFileException e) {
      return null;
    }
  }
}
