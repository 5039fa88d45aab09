package io.hayloft.wirecheck;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/**
 * Every message and enum of the Rust crate against the descriptors of the Hadoop on the class path.
 */
class FieldNumbersTest {
  /** Fewer messages than this mean that the table was cut. */
  private static final int LEAST_MESSAGES = 100;

  private static final HadoopDescriptors HADOOP = new HadoopDescriptors();
  private static FieldTable table;

  @BeforeAll
  static void readTable() throws IOException, InterruptedException {
    table = FieldTable.load();
  }

  @Test
  void tableIsWhole() {
    assertTrue(table.messages.size() >= LEAST_MESSAGES,
        "only " + table.messages.size() + " messages in the table");
    assertFalse(table.enums.isEmpty(), "no enums in the table");
    table.messages.values().stream().flatMap(List::stream)
        .filter(field -> field.type().equals("message") || field.type().equals("enum"))
        .forEach(field -> assertTrue(table.messages.containsKey(field.typeName())
            || table.enums.containsKey(field.typeName()), "type of " + field));
  }

  @TestFactory
  List<DynamicTest> messages() {
    List<DynamicTest> tests = new ArrayList<>();
    table.messages.forEach((name, fields) -> tests.add(DynamicTest.dynamicTest(name,
        () -> assertEquals(List.of(), Comparison.ofMessage(HADOOP, name, fields)))));
    return tests;
  }

  @TestFactory
  List<DynamicTest> enums() {
    List<DynamicTest> tests = new ArrayList<>();
    table.enums.forEach((name, values) -> tests.add(DynamicTest.dynamicTest(name,
        () -> assertEquals(List.of(), Comparison.ofEnum(HADOOP, name, values)))));
    return tests;
  }

  /** The comparison itself: any one thing changed in a field is found. */
  @Test
  void everyChangeIsFound() {
    String good = "field hadoop.hdfs.BlockProto num_bytes 3 uint64 optional - - 0";
    assertEquals(List.of(), blockDifferences(good));
    for (String bad : List.of(
        good.replace(" 3 ", " 2 "),
        good.replace(" 3 ", " 9 "),
        good.replace("uint64", "int64"),
        good.replace("optional", "required"),
        good.replace("num_bytes", "length"),
        good.replace("optional -", "optional packed"),
        good.replace("- 0", "hadoop.hdfs.BlockProto 0"),
        good.replace("- 0", "- 1"))) {
      assertFalse(blockDifferences(bad).isEmpty(), bad);
    }
  }

  private static List<String> blockDifferences(String third) {
    FieldTable small = FieldTable.parse(List.of("message hadoop.hdfs.BlockProto",
        "field hadoop.hdfs.BlockProto block_id 1 uint64 required - - -",
        "field hadoop.hdfs.BlockProto gen_stamp 2 uint64 required - - -", third));
    String name = "hadoop.hdfs.BlockProto";
    return Comparison.ofMessage(HADOOP, name, small.messages.get(name));
  }

  @Test
  void unknownAndMissingThingsAreFound() {
    assertFalse(Comparison.ofMessage(HADOOP, "hadoop.hdfs.NoSuchProto", List.of()).isEmpty());
    assertFalse(Comparison.ofMessage(HADOOP, "hadoop.hdfs.BlockProto", List.of()).isEmpty());
    assertFalse(Comparison.ofEnum(HADOOP, "hadoop.hdfs.NoSuch", List.of()).isEmpty());
    assertFalse(Comparison.ofEnum(HADOOP, "hadoop.hdfs.Status", List.of()).isEmpty());
    assertThrows(IllegalArgumentException.class, () -> FieldTable.parse(List.of("nonsense")));
    assertThrows(IllegalArgumentException.class,
        () -> FieldTable.parse(List.of("message a", "message a")));
  }
}
