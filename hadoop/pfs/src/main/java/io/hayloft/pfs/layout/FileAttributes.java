package io.hayloft.pfs.layout;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Extended attributes of files outside {@code user.}, which Java does not read: {@code getfattr}
 * does.
 */
final class FileAttributes {
  private static final String FILE_START = "# file: ";

  private FileAttributes() {}

  /** What getfattr prints of an attribute of these files, errors too. */
  static String print(String name, List<Path> files, long limitMs) throws IOException {
    List<String> command =
        new ArrayList<>(List.of("getfattr", "--absolute-names", "-e", "text", "-n", name));
    files.forEach(file -> command.add(file.toString()));
    return ToolOutput.of(command, limitMs);
  }

  /** Files by their names as getfattr prints them. */
  static Map<String, Path> byPrinted(List<Path> files) {
    Map<String, Path> byName = new HashMap<>();
    files.forEach(file -> byName.put(printed(file.toString()), file));
    return byName;
  }

  /** A name as getfattr prints it, on one line. */
  static String printed(String name) {
    return name.replace("\\", "\\134").replace("\n", "\\012").replace("\r", "\\015");
  }

  /**
   * The values that were printed of the files asked for, with what stands behind them on the
   * line. A name of an attribute may be told by its end alone.
   */
  static Map<Path, String> parse(String output, Map<String, Path> asked, String nameEnd) {
    String start = nameEnd + "=\"";
    Map<Path, String> values = new HashMap<>();
    Path file = null;
    for (String line : output.split("\n")) {
      if (line.startsWith(FILE_START)) {
        file = asked.get(line.substring(FILE_START.length()));
      } else if (file != null && line.contains(start)) {
        values.put(file, line.substring(line.indexOf(start) + start.length()));
        file = null;
      }
    }
    return values;
  }
}
