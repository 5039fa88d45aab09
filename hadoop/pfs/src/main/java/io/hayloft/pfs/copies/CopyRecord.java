package io.hayloft.pfs.copies;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/**
 * What a file's attribute says of its copies. The attribute {@code file} is written at the start
 * and names where copies shall be; {@code seal} follows when they are closed, and names those that
 * are complete, with the length and the time of the file then.
 *
 * <p>The inode tells a file from one that only has its attributes, as {@code cp -a} makes.
 *
 * @param first the target of the file itself
 * @param copies the targets of the others, in which each is a file named by the uuid
 */
record CopyRecord(
    UUID uuid, long inode, String first, List<String> copies, long length, long modifiedMs) {
  static final String FILE = "file";
  static final String SEAL = "seal";

  private static final String VERSION = "1";
  private static final int COPIES_MAX = 32;

  CopyRecord sealed(List<String> complete, long sealedLength, long sealedModifiedMs) {
    return new CopyRecord(uuid, inode, first, complete, sealedLength, sealedModifiedMs);
  }

  @Override
  public String toString() {
    return String.join(
        " ",
        VERSION,
        "uuid=" + uuid,
        "inode=" + inode,
        "first=" + first,
        "copies=" + String.join(",", copies),
        "length=" + length,
        "modified=" + modifiedMs);
  }

  /** Null for a text that is no record, or one of a later version. */
  static CopyRecord parse(String text) {
    String[] parts = text.split(" ");
    if (!parts[0].equals(VERSION)) {
      return null;
    }
    Map<String, String> values = new HashMap<>();
    for (String part : parts) {
      int at = part.indexOf('=');
      if (at > 0) {
        values.put(part.substring(0, at), part.substring(at + 1));
      }
    }
    try {
      List<String> copies = new ArrayList<>();
      for (String name : values.getOrDefault("copies", "").split(",")) {
        if (!name.isEmpty()) {
          copies.add(name);
        }
      }
      if (copies.size() > COPIES_MAX) {
        return null;
      }
      return new CopyRecord(
          UUID.fromString(values.getOrDefault("uuid", "")),
          Long.parseLong(values.getOrDefault("inode", "")),
          values.getOrDefault("first", ""),
          List.copyOf(copies),
          Long.parseLong(values.getOrDefault("length", "")),
          Long.parseLong(values.getOrDefault("modified", "")));
    } catch (IllegalArgumentException e) {
      return null;
    }
  }
}
