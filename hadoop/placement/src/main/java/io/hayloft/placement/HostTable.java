package io.hayloft.placement;

import java.io.IOException;
import java.nio.charset.MalformedInputException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * A text file of two columns, a host and its value: one pair a line, separated by blanks, {@code #}
 * starts a comment. Hosts are compared without regard to case; a host may stand twice only with the
 * same value.
 */
final class HostTable {
  /** Files beyond this size are refused: 4,000 hosts take about 200 KiB. */
  static final long MAX_BYTES = 16L << 20;

  /** Checks one value and returns it in its normal form. */
  @FunctionalInterface
  interface Check {
    /** Throws {@link IllegalArgumentException} with what is wrong, without the place. */
    String normalise(String value);
  }

  private HostTable() {}

  /**
   * Reads the whole file.
   *
   * @param key the configuration key that named it, for messages
   * @throws IllegalArgumentException with one sentence: which file, which line, what is wrong
   */
  static Map<String, String> read(Path file, String key, Check check) {
    List<String> lines = lines(file, key);
    Map<String, String> table = new HashMap<>();
    Map<String, Integer> seen = new HashMap<>();
    for (int i = 0; i < lines.size(); i++) {
      String line = lines.get(i);
      int comment = line.indexOf('#');
      String content = (comment < 0 ? line : line.substring(0, comment)).trim();
      if (content.isEmpty()) {
        continue;
      }
      String[] fields = content.split("\\s+");
      if (fields.length != 2) {
        throw bad(file, i, "has " + fields.length + " words where a host and its value are expected");
      }
      String host = fields[0].toLowerCase(Locale.ROOT);
      String value;
      try {
        value = check.normalise(fields[1]);
      } catch (IllegalArgumentException e) {
        throw bad(file, i, e.getMessage());
      }
      String before = table.putIfAbsent(host, value);
      Integer line0 = seen.putIfAbsent(host, i + 1);
      if (before != null && !before.equals(value)) {
        throw bad(
            file, i, "gives " + host + " the value " + value + ", but line " + line0 + " gives it " + before);
      }
    }
    return Map.copyOf(table);
  }

  private static List<String> lines(Path file, String key) {
    try {
      long size = Files.size(file);
      if (size > MAX_BYTES) {
        throw new IllegalArgumentException(
            String.format("The file %s of %s has %d bytes; the limit is %d.", file, key, size, MAX_BYTES));
      }
      return Files.readAllLines(file);
    } catch (MalformedInputException e) {
      throw new IllegalArgumentException(
          String.format("The file %s of %s is not text in UTF-8.", file, key), e);
    } catch (IOException e) {
      throw new IllegalArgumentException(
          String.format("Cannot read the file %s of %s: %s.", file, key, reason(e)), e);
    }
  }

  private static String reason(IOException e) {
    return e instanceof java.nio.file.NoSuchFileException ? "it does not exist" : e.toString();
  }

  private static IllegalArgumentException bad(Path file, int index, String what) {
    return new IllegalArgumentException(String.format("Line %d of %s %s.", index + 1, file, what));
  }
}
