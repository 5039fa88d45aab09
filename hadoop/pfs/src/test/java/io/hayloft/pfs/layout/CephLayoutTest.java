package io.hayloft.pfs.layout;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** What a Ceph of version 16.2.15 printed, and what a broken one might. */
class CephLayoutTest {
  private static final long MIB = 1 << 20;

  /** Fields that are not read are left out but for one or two of each kind. */
  private static final String POOLS =
      "[{\"pool_id\":1,\"pool_name\":\"device_health_metrics\",\"flags_names\":\"hashpspool\","
          + "\"object_hash\":2,\"pg_autoscale_mode\":\"off\",\"pg_num\":1,"
          + "\"last_pg_merge_meta\":{\"source_pgid\":\"0.0\"},\"options\":{\"pg_num_max\":32}},"
          + "{\"pool_id\":2,\"pool_name\":\"data\",\"create_time\":\"2026-11-30T16:43:06.49+0000\","
          + "\"object_hash\":2,\"pg_autoscale_mode\":\"off\",\"pg_num\":8,\"pg_num_target\":8,"
          + "\"last_pg_merge_meta\":{\"source_pgid\":\"0.0\"},\"options\":{}},"
          + "{\"pool_id\":9,\"pool_name\":\"old\",\"object_hash\":1,\"pg_num\":8}]";

  private static final String TREE =
      "{\"nodes\":[{\"id\":-1,\"name\":\"default\",\"type\":\"root\",\"type_id\":11,"
          + "\"children\":[-10,-4]},{\"id\":-4,\"name\":\"rack1\",\"type\":\"rack\",\"type_id\":3,"
          + "\"pool_weights\":{},\"children\":[-7,-3]},{\"id\":-3,\"name\":\"cs1\","
          + "\"type\":\"host\",\"type_id\":1,\"pool_weights\":{},\"children\":[0]},"
          + "{\"id\":0,\"device_class\":\"hdd\",\"name\":\"osd.0\",\"type\":\"osd\","
          + "\"crush_weight\":0.0038,\"pool_weights\":{},\"status\":\"up\"},"
          + "{\"id\":-7,\"name\":\"cs2\",\"type\":\"host\",\"pool_weights\":{},\"children\":[1]},"
          + "{\"id\":1,\"name\":\"osd.1\",\"type\":\"osd\"},{\"id\":-9,\"name\":\"cs3\","
          + "\"type\":\"host\",\"type_id\":1,\"children\":[12,2]}],\"stray\":[]}";

  private static final String GROUPS = groups(2, 0, 1, 12, -1, 77, 1, 0);

  private static final String ANSWERS =
      POOLS + "\n" + TREE + "\n\ndumped pgs_brief\n" + GROUPS + "\n";

  private static String groups(int... primaries) {
    List<String> groups = new ArrayList<>();
    for (int n = 0; n < primaries.length; n++) {
      groups.add(
          String.format(
              "{\"pgid\":\"2.%x\",\"state\":\"active+clean\",\"up\":[%2$d,1],\"acting\":[%2$d,1],"
                  + "\"up_primary\":%2$d,\"acting_primary\":%2$d}",
              n, primaries[n]));
    }
    return "{\"pg_ready\":true,\"pg_stats\":[" + String.join(",", groups) + "]}";
  }

  @Test
  void theHashIsThatOfCeph() {
    assertEquals(0x29eec818, CephHash.of("", "a"));
    assertEquals(0x0ae85e4b, CephHash.of("", "abc.00000000"));
    assertEquals(0x0b1b3ea5, CephHash.of("", "abcdefghijkl"), "a whole block");
    assertEquals(0x8dee801c, CephHash.of("", "10000000008.00000001"));
    assertEquals(0xc27a551f, CephHash.of("", "äöü.1"));
    assertEquals(0xfe2feaf4, CephHash.of("ns", "0123456789abcdefghijklmnopq"));
    assertEquals(0xbd49d10d, CephHash.of("", ""));
  }

  @Test
  void groupsNeedNotBeAPowerOfTwo() {
    assertEquals(0, CephHash.group(-1, 1));
    assertEquals(7, CephHash.group(-1, 8));
    assertEquals(0b1011, CephHash.group(0b111011, 12));
    assertEquals(0b0101, CephHash.group(0b111101, 12), "13 is none of 12, so one bit is dropped");
  }

  @Test
  void objectsAreOnTheHostsOfTheirPrimaries() throws IOException {
    CephMap map = CephMap.parse(ANSWERS);
    assertEquals(List.of("cs3"), map.servers("data", "", "a"), "group 0");
    assertEquals(List.of("cs3"), map.servers("data", "", "abc.00000000"), "group 3");
    String fourth = "0123456789abcdefghijklmnopq";
    assertEquals(List.of(), map.servers("data", "ns", fourth), "group 4 is served by none");
    assertEquals(List.of(), map.servers("data", "", "abcdefghijkl"), "OSD 77 is in no host");
    assertEquals(List.of(), map.servers("none", "", "a"));
    assertTrue(map.knows("data"));
    assertFalse(map.knows("old"), "its hash is another");
  }

  @Test
  void aMissingAnswerSaysWhatTheUserNeeds() {
    for (String broken :
        List.of(
            "",
            "Error EACCES: access denied",
            POOLS + "\n" + TREE,
            POOLS + "\n" + GROUPS,
            TREE + "\n" + GROUPS)) {
      var e = assertThrows(IOException.class, () -> CephMap.parse(broken));
      assertTrue(e.getMessage().contains("mgr 'allow r'"), e.getMessage());
    }
  }

  @Test
  void theErrorIsFoundBehindLongAnswers() {
    String refused = "Error EACCES: access denied: does your client key have mgr caps?";
    String answers = POOLS + "\n" + TREE + "\n" + refused + "\n";
    var e = assertThrows(IOException.class, () -> CephMap.parse(answers));
    assertTrue(e.getMessage().endsWith(refused), e.getMessage());
  }

  @Test
  void hugeNumbersAreNotBelieved() throws IOException {
    String pools = POOLS.replace("\"pg_num\":8,\"pg_num_t", "\"pg_num\":999999999,\"pg_num_t");
    assertThrows(IOException.class, () -> CephMap.parse(ANSWERS.replace(POOLS, pools)));
    String groups = GROUPS.replace("\"2.0\"", "\"2.fffffff\"").replace("2.1", "99999999999.1");
    CephMap map = CephMap.parse(ANSWERS.replace(GROUPS, groups));
    assertEquals(List.of(), map.servers("data", "", "a"));
  }

  @Test
  void garbageIsAnErrorOrAnAnswer() {
    Random random = new Random(3);
    for (int round = 0; round < 2_000; round++) {
      StringBuilder text = new StringBuilder(ANSWERS);
      for (int change = 0; change < 1 + round % 40; change++) {
        text.setCharAt(random.nextInt(text.length()), (char) random.nextInt(128));
      }
      text.setLength(random.nextInt(text.length()));
      try {
        CephMap.parse(text.toString()).servers("data", "", "a");
      } catch (IOException e) {
        assertTrue(e.getMessage().contains("ceph told"), e.getMessage());
      }
      CephLayout.Striping.parse(text.toString());
    }
  }

  @Test
  void howAFileIsCutIsRead() {
    CephLayout.Striping plain =
        CephLayout.Striping.parse(
            "stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=data\"");
    assertEquals(new CephLayout.Striping(4 * MIB, 1, 4 * MIB, "data", ""), plain);
    assertEquals(2, plain.objectAt(9 * MIB));
    CephLayout.Striping other =
        CephLayout.Striping.parse(
            "stripe_unit=1048576 stripe_count=3 object_size=2097152 pool=a b pool_namespace=x\"");
    assertEquals(new CephLayout.Striping(MIB, 3, 2 * MIB, "a b", "x"), other);
    long[] objects = {0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5, 6};
    for (int n = 0; n < objects.length; n++) {
      assertEquals(objects[n], other.objectAt(n * MIB + 7), "unit " + n);
    }
    for (String wrong :
        List.of(
            "stripe_unit=0 stripe_count=1 object_size=4194304 pool=data\"",
            "stripe_unit=4194304 stripe_count=0 object_size=4194304 pool=data\"",
            "stripe_unit=3000000 stripe_count=1 object_size=4194304 pool=data\"",
            "stripe_unit=8388608 stripe_count=1 object_size=4194304 pool=data\"",
            "stripe_unit=4194304 stripe_count=1 object_size=99999999999999999999 pool=data\"",
            "stripe_unit=4194304 stripe_count=1 object_size=4194304",
            "")) {
      assertNull(CephLayout.Striping.parse(wrong), wrong);
    }
  }

  @Test
  void aFileLiesWhereItsObjectsDo() throws IOException {
    CephLayout.Striping striping = new CephLayout.Striping(4 * MIB, 1, 4 * MIB, "data", "");
    Layouts.Key file = new Layouts.Key(Path.of("/f"), 0x10000000008L, 1, 45 * MIB);
    FileLayout layout = CephLayout.layout(file, striping, CephMap.parse(ANSWERS));
    assertEquals(4 * MIB, layout.chunkSize());
    assertEquals(12, layout.servers().size());
    assertEquals(List.of(), layout.servers().get(1), "group 4");
    assertEquals(List.of("cs1"), layout.servers().get(10), "group 7");
  }

  @Test
  void anEndlessFileHasAsManyChunksAsMemoryTakes() throws IOException {
    CephLayout.Striping striping = new CephLayout.Striping(1, 7, 2, "data", "");
    Layouts.Key file = new Layouts.Key(Path.of("/f"), 8, 1, Long.MAX_VALUE);
    FileLayout layout = CephLayout.layout(file, striping, CephMap.parse(ANSWERS));
    assertTrue(layout.servers().size() <= 1 << 14, "chunks: " + layout.servers().size());
    Layouts.Key empty = new Layouts.Key(Path.of("/f"), 8, 1, 0);
    assertEquals(
        List.of(), CephLayout.layout(empty, striping, CephMap.parse(ANSWERS)).servers());
  }
}
