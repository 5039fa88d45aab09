package io.hayloft.pfs;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.GroupPrincipal;
import java.nio.file.attribute.UserPrincipal;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.permission.FsPermission;

/** What a stat call tells of a file. */
record Attributes(
    long inode,
    long device,
    long size,
    long modifiedMs,
    long accessedMs,
    int mode,
    int uid,
    int gid,
    Kind kind) {
  private static final String WANTED =
      "unix:ino,dev,size,lastModifiedTime,lastAccessTime,mode,uid,gid,isDirectory,isSymbolicLink";
  private static final int PERMISSION_BITS = 01777;

  /** Names kept; a site with more users than that looks some up again. */
  private static final int NAMES_MAX = 10_000;

  private static final Map<Integer, String> OWNERS = new ConcurrentHashMap<>();
  private static final Map<Integer, String> GROUPS = new ConcurrentHashMap<>();

  enum Kind {
    FILE,
    DIRECTORY,
    LINK
  }

  /** Of the file, or of what a link leads to. */
  static Attributes of(Path file) throws IOException {
    return make(Files.readAttributes(file, WANTED));
  }

  /** Of the file, or of the link itself. */
  static Attributes ofLink(Path file) throws IOException {
    return make(Files.readAttributes(file, WANTED, LinkOption.NOFOLLOW_LINKS));
  }

  /** Of the file, or of what a link leads to; null if nothing is there. */
  static Attributes find(Path file) throws IOException {
    return read(file);
  }

  /** Of the file, or of the link itself; null if nothing is there. */
  static Attributes findLink(Path file) throws IOException {
    return read(file, LinkOption.NOFOLLOW_LINKS);
  }

  private static Attributes read(Path file, LinkOption... options) throws IOException {
    try {
      return make(Files.readAttributes(file, WANTED, options));
    } catch (IOException e) {
      if (Errors.isAbsent(e)) {
        return null;
      }
      throw e;
    }
  }

  private static Attributes make(Map<String, Object> got) {
    Kind kind = Kind.FILE;
    if ((Boolean) got.get("isDirectory")) {
      kind = Kind.DIRECTORY;
    } else if ((Boolean) got.get("isSymbolicLink")) {
      kind = Kind.LINK;
    }
    return new Attributes(
        (Long) got.get("ino"),
        (Long) got.get("dev"),
        (Long) got.get("size"),
        ((FileTime) got.get("lastModifiedTime")).toMillis(),
        ((FileTime) got.get("lastAccessTime")).toMillis(),
        (Integer) got.get("mode"),
        (Integer) got.get("uid"),
        (Integer) got.get("gid"),
        kind);
  }

  boolean isDirectory() {
    return kind == Kind.DIRECTORY;
  }

  /** Length as Hadoop counts it: directories and links have none. */
  long length() {
    return kind == Kind.FILE ? size : 0;
  }

  FsPermission permission() {
    return new FsPermission((short) (mode & PERMISSION_BITS));
  }

  /** Name of the owner; its number if it has no name. */
  String owner(Path file) throws IOException {
    String known = OWNERS.get(uid);
    return known == null ? readNames(file).get("owner").toString() : known;
  }

  /** Name of the group; its number if it has no name. */
  String group(Path file) throws IOException {
    String known = GROUPS.get(gid);
    return known == null ? readNames(file).get("group").toString() : known;
  }

  /** Reads names and numbers by one call, since another file may have come in this one's place. */
  private Map<String, Object> readNames(Path file) throws IOException {
    LinkOption[] options =
        kind == Kind.LINK ? new LinkOption[] {LinkOption.NOFOLLOW_LINKS} : new LinkOption[0];
    Map<String, Object> read = Files.readAttributes(file, "unix:uid,gid,owner,group", options);
    keep(OWNERS, (Integer) read.get("uid"), ((UserPrincipal) read.get("owner")).getName());
    keep(GROUPS, (Integer) read.get("gid"), ((GroupPrincipal) read.get("group")).getName());
    return read;
  }

  private static void keep(Map<Integer, String> names, int id, String name) {
    if (names.size() >= NAMES_MAX) {
      names.clear();
    }
    names.put(id, name);
  }
}
