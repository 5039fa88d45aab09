package io.hayloft.wirecheck;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The table that the Rust crate prints about its own messages: {@code cargo run -p hayloft-wire
 * --example field_table}. See {@code schema::field_table} there for the format.
 */
final class FieldTable {
  /** One field of a message; {@code packed}, type name and default are "-" when absent. */
  record Field(String message, String name, int number, String type, String label, boolean packed,
      String typeName, String defaultValue) {
  }

  /** One value of an enum. */
  record Value(String name, int number) {
  }

  final Map<String, List<Field>> messages = new LinkedHashMap<>();
  final Map<String, List<Value>> enums = new LinkedHashMap<>();

  /** Parses the table; any line of another form is an error. */
  static FieldTable parse(List<String> lines) {
    FieldTable table = new FieldTable();
    for (String line : lines) {
      if (!line.isEmpty()) {
        table.add(line, line.split(" "));
      }
    }
    return table;
  }

  private void add(String line, String[] words) {
    switch (words[0] + "/" + words.length) {
      case "message/2" -> addNew(messages, words[1]);
      case "enum/2" -> addNew(enums, words[1]);
      case "field/9" -> known(messages, words[1], line).add(new Field(words[1], words[2],
          Integer.parseInt(words[3]), words[4], words[5], words[6].equals("packed"), words[7],
          words[8]));
      case "value/4" -> known(enums, words[1], line)
          .add(new Value(words[2], Integer.parseInt(words[3])));
      default -> throw new IllegalArgumentException("not a line of a field table: " + line);
    }
  }

  private static <T> void addNew(Map<String, List<T>> map, String name) {
    if (map.put(name, new ArrayList<>()) != null) {
      throw new IllegalArgumentException("declared twice: " + name);
    }
  }

  private static <T> List<T> known(Map<String, List<T>> map, String name, String line) {
    List<T> list = map.get(name);
    if (list == null) {
      throw new IllegalArgumentException("before its declaration: " + line);
    }
    return list;
  }
}
