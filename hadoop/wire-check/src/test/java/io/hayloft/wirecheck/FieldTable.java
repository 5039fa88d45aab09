package io.hayloft.wirecheck;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The table that the Rust crate prints about its own messages: {@code cargo run -p hayloft-wire
 * --example field_table}. Its source says the format.
 */
final class FieldTable {
  /** One field of a message; {@code packed}, type name and default are "-" when absent. */
  record Field(String message, String name, int number, String type, String label, boolean packed,
      String typeName, String defaultValue) {
  }

  /** One value of an enum. */
  record Value(String name, int number) {
  }

  /** A static number of a Java class. */
  record Constant(String className, String field, long number) {
  }

  /** A protocol by the name that calls use. */
  record Protocol(String name, long version) {
  }

  final Map<String, List<Field>> messages = new LinkedHashMap<>();
  final Map<String, List<Value>> enums = new LinkedHashMap<>();
  final List<Constant> constants = new ArrayList<>();
  final List<Value> ops = new ArrayList<>();
  final List<Protocol> protocols = new ArrayList<>();
  final List<String> exceptions = new ArrayList<>();

  /**
   * The table from the file named by the system property {@code hayloft.field.table} or the
   * environment variable {@code HAYLOFT_FIELD_TABLE}; without either, cargo is run to print it.
   */
  static FieldTable load() throws IOException, InterruptedException {
    String file = System.getProperty("hayloft.field.table", "");
    if (file.isEmpty()) {
      file = System.getenv().getOrDefault("HAYLOFT_FIELD_TABLE", "");
    }
    if (!file.isEmpty()) {
      return parse(Files.readAllLines(Path.of(file)));
    }
    Process cargo = new ProcessBuilder("cargo", "run", "--quiet", "--package", "hayloft-wire",
        "--example", "field_table")
        .directory(new File("../.."))
        .redirectError(ProcessBuilder.Redirect.INHERIT)
        .start();
    String text = new String(cargo.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    int exit = cargo.waitFor();
    if (exit != 0) {
      throw new IOException("cargo could not print the field table: exit code " + exit);
    }
    return parse(text.lines().toList());
  }

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
      case "constant/4" ->
          constants.add(new Constant(words[1], words[2], Long.parseLong(words[3])));
      case "op/3" -> ops.add(new Value(words[1], Integer.parseInt(words[2])));
      case "protocol/3" -> protocols.add(new Protocol(words[1], Long.parseLong(words[2])));
      case "exception/2" -> exceptions.add(words[1]);
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
