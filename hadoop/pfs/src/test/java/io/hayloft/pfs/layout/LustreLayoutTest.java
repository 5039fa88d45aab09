package io.hayloft.pfs.layout;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Answers in the forms that Lustre's documentation has; none of a real one. */
class LustreLayoutTest {
  private static final long MIB = 1 << 20;

  private static final String PLAIN =
      String.join(
          "\n",
          "/mnt/a b",
          "lmm_stripe_count:  2",
          "lmm_stripe_size:   4194304",
          "lmm_pattern:       raid0",
          "lmm_layout_gen:    0",
          "lmm_stripe_offset: 3",
          "\tobdidx\t\t objid\t\t objid\t\t group",
          "\t     3\t            69\t         0x45\t             0",
          "\t     0\t            70\t         0x46\t   0x280000400",
          "",
          "");

  /** On the metadata server first, then on one OST, then on two, and nothing written beyond. */
  private static final String PROGRESSIVE =
      String.join(
          "\n",
          "/mnt/parts",
          "  lcm_layout_gen:    4",
          "  lcm_mirror_count:  1",
          "  lcm_entry_count:   4",
          "    lcme_id:             1",
          "    lcme_mirror_id:      0",
          "    lcme_flags:          init",
          "    lcme_extent.e_start: 0",
          "    lcme_extent.e_end:   1048576",
          "      lmm_stripe_count:  0",
          "      lmm_stripe_size:   1048576",
          "      lmm_pattern:       mdt",
          "      lmm_layout_gen:    0",
          "      lmm_stripe_offset: 0",
          "",
          "    lcme_id:             2",
          "    lcme_flags:          init",
          "    lcme_extent.e_start: 1048576",
          "    lcme_extent.e_end:   4194304",
          "      lmm_stripe_count:  1",
          "      lmm_stripe_size:   1048576",
          "      lmm_pattern:       raid0",
          "      lmm_layout_gen:    0",
          "      lmm_stripe_offset: 1",
          "      lmm_objects:",
          "      - 0: { l_ost_idx: 1, l_fid: [0x100010000:0x56:0x0] }",
          "",
          "    lcme_id:             3",
          "    lcme_flags:          init",
          "    lcme_extent.e_start: 4194304",
          "    lcme_extent.e_end:   16777216",
          "      lmm_stripe_count:  2",
          "      lmm_stripe_size:   2097152",
          "      lmm_pattern:       raid0",
          "      lmm_pool:          flash",
          "      lmm_objects:",
          "      - 0: { l_ost_idx: 11, l_fid: [0x1000b0000:0x2:0x0] }",
          "      - 1: { l_ost_idx: 2, l_fid: [0x100020000:0x2:0x0] }",
          "",
          "    lcme_id:             4",
          "    lcme_flags:          0",
          "    lcme_extent.e_start: 16777216",
          "    lcme_extent.e_end:   EOF",
          "      lmm_stripe_count:  -1",
          "      lmm_stripe_size:   4194304",
          "      lmm_pattern:       raid0",
          "      lmm_stripe_offset: -1",
          "",
          "");

  private static final String MIRRORED =
      String.join(
          "\n",
          "/mnt/mirrors",
          "  lcm_layout_gen:    2",
          "  lcm_mirror_count:  3",
          "  lcm_entry_count:   3",
          "    lcme_id:             65537",
          "    lcme_mirror_id:      1",
          "    lcme_flags:          init,prefer",
          "    lcme_extent.e_start: 0",
          "    lcme_extent.e_end:   EOF",
          "      lmm_stripe_count:  1",
          "      lmm_stripe_size:   4194304",
          "      lmm_objects:",
          "      - 0: { l_ost_idx: 1, l_fid: [0x100010000:0x2:0x0] }",
          "    lcme_id:             131074",
          "    lcme_mirror_id:      2",
          "    lcme_flags:          init,stale",
          "    lcme_extent.e_start: 0",
          "    lcme_extent.e_end:   EOF",
          "      lmm_stripe_count:  1",
          "      lmm_stripe_size:   4194304",
          "      lmm_objects:",
          "      - 0: { l_ost_idx: 3, l_fid: [0x100030000:0x2:0x0] }",
          "    lcme_id:             196611",
          "    lcme_mirror_id:      3",
          "    lcme_flags:          init,nosync",
          "    lcme_timestamp:      'Tue Dec  1 10:00:00 2026'",
          "    lcme_extent.e_start: 0",
          "    lcme_extent.e_end:   EOF",
          "      lmm_stripe_count:  1",
          "      lmm_stripe_size:   1048576",
          "      lmm_objects:",
          "      - 0: { l_ost_idx: 4, l_fid: [0x100040000:0x2:0x0] }",
          "");

  private static final String DEVICE = "tfs1-ffff93af0c638800 /mnt";

  private static final String CONNECTIONS =
      String.join(
          "\n",
          "osc.tfs1-OST0000-osc-ffff93af0c638800.ost_conn_uuid=192.168.0.205@tcp",
          "osc.tfs1-OST0003-osc-ffff93af0c638800.ost_conn_uuid=10.1.0.206@o2ib1",
          "osc.tfs1-OST000b-osc-ffff93af0c638800.ost_conn_uuid=fd00::11@tcp",
          "osc.tfs1-OST0002-osc-ffff93af0c638800.ost_conn_uuid=17@gni",
          "osc.tfs2-OST0001-osc-ffff93af2c7a6800.ost_conn_uuid=192.168.0.207@tcp",
          "osc.tfs1-OST0001-osc-ffff93af2c7a9999.ost_conn_uuid=192.168.0.208@tcp",
          "error: get_param: param_path 'osc/x': No such file or directory");

  private static LustreStripes of(String output, String name) {
    return LustreStripes.parse(output, Set.of(name)).get(name);
  }

  @Test
  void stripesOfAPlainFileTakeTurns() {
    LustreStripes stripes = of(PLAIN, "/mnt/a b");
    assertEquals(4 * MIB, stripes.unit());
    assertEquals(List.of(3), stripes.ostsAt(0));
    assertEquals(List.of(0), stripes.ostsAt(4 * MIB));
    assertEquals(List.of(3), stripes.ostsAt(8 * MIB + 1));
  }

  @Test
  void partsHaveTheirOwnStripes() {
    LustreStripes stripes = of(PROGRESSIVE, "/mnt/parts");
    assertEquals(MIB, stripes.unit());
    assertEquals(List.of(), stripes.ostsAt(0), "on the metadata server");
    assertEquals(List.of(1), stripes.ostsAt(MIB));
    assertEquals(List.of(1), stripes.ostsAt(4 * MIB - 1));
    assertEquals(List.of(11), stripes.ostsAt(4 * MIB), "counted from the start of the file");
    assertEquals(List.of(2), stripes.ostsAt(6 * MIB));
    assertEquals(List.of(), stripes.ostsAt(16 * MIB), "never written");
  }

  @Test
  void mirrorsThatAreUpToDateCount() {
    LustreStripes stripes = of(MIRRORED, "/mnt/mirrors");
    assertEquals(MIB, stripes.unit());
    assertEquals(List.of(1, 4), stripes.ostsAt(100 * MIB));
  }

  @Test
  void manyFilesAndErrorsAreOneAnswer() {
    String missing = "error: getstripe failed for /mnt/gone.\n";
    Set<String> asked = Set.of("/mnt/a b", "/mnt/parts", "/mnt/mirrors", "/mnt/gone");
    var found = LustreStripes.parse(PLAIN + missing + PROGRESSIVE + MIRRORED, asked);
    assertEquals(Set.of("/mnt/a b", "/mnt/parts", "/mnt/mirrors"), found.keySet());
    assertEquals(Map.of(), LustreStripes.parse(PLAIN, Set.of("/mnt/b")), "not asked for");
  }

  @Test
  void serversAreThoseOfThisMount() {
    assertEquals(
        Map.of(0, "192.168.0.205", 3, "10.1.0.206", 11, "fd00::11", 2, "17@gni"),
        LustreStripes.servers(DEVICE, CONNECTIONS));
    assertEquals(Map.of(), LustreStripes.servers("cannot find /mnt", CONNECTIONS));
    assertEquals(Map.of(), LustreStripes.servers(DEVICE, "lctl: command not found"));
  }

  @Test
  void aFileLiesOnTheServersOfItsOsts() {
    FileLayout layout =
        LustreLayout.layout(
            17 * MIB,
            of(PROGRESSIVE, "/mnt/parts"),
            LustreStripes.servers(DEVICE, CONNECTIONS),
            Set.of("OST0002"));
    assertEquals(MIB, layout.chunkSize());
    assertEquals(17, layout.servers().size());
    assertEquals(List.of(), layout.servers().get(1), "lctl knows no server of OST 1");
    assertEquals(List.of("fd00::11"), layout.servers().get(5));
    assertEquals(List.of("OST0002"), layout.servers().get(6), "fs.pfs.hosts has its name");
  }

  @Test
  void anEndlessFileHasAsManyChunksAsMemoryTakes() {
    String tiny = PLAIN.replace("4194304", "1");
    FileLayout layout =
        LustreLayout.layout(
            Long.MAX_VALUE, of(tiny, "/mnt/a b"), Map.of(0, "a", 3, "b"), Set.of());
    assertTrue(layout.servers().size() <= 1 << 14, "chunks: " + layout.servers().size());
  }

  @Test
  void whatIsWrongOrHugeVoidsTheFile() {
    for (String[] change :
        new String[][] {
          {"lmm_stripe_size:   2097152", "lmm_stripe_size:   0"},
          {"lmm_stripe_size:   2097152", "lmm_stripe_size:   99999999999999999999"},
          {"lmm_stripe_size:   2097152", "lmm_stripe_gone:  2"},
          {"lmm_stripe_count:  2", "lmm_stripe_count:  3"},
          {"lmm_stripe_count:  2", "lmm_stripe_count:  99999999999999999999"},
          {"e_end:   16777216", "e_end:   16777216E"},
          {"e_end:   16777216", "e_end:   4194303"},
          {"e_start: 4194304", "e_start: -1"},
          {"l_ost_idx: 11", "l_ost_idx: 65536"},
          {"l_ost_idx: 11", "l_ost_idx: 99999999999"},
          {"- 1: { l", "- 2: { l"},
          {"lcme_id:             1", "nothing of Lustre's"},
        }) {
      String wrong = PROGRESSIVE.replace(change[0], change[1]);
      assertFalse(wrong.equals(PROGRESSIVE), change[0]);
      Set<String> asked = Set.of("/mnt/parts", "/mnt/a b");
      assertEquals(
          Set.of("/mnt/a b"), LustreStripes.parse(wrong + PLAIN, asked).keySet(), change[1]);
    }
    String many = "/mnt/f\n" + "    lcme_id:   1\n      lmm_stripe_size: 65536\n".repeat(1_025);
    assertEquals(Map.of(), LustreStripes.parse(many, Set.of("/mnt/f")));
  }

  @Test
  void whatIsCutOrGarbageNeverThrows() {
    Random random = new Random(4);
    Set<String> asked = Set.of("/mnt/a b", "/mnt/parts");
    String whole = PLAIN + PROGRESSIVE;
    for (int length = 0; length < whole.length(); length++) {
      LustreStripes.parse(whole.substring(0, length), asked);
    }
    for (int round = 0; round < 2_000; round++) {
      char[] text = whole.toCharArray();
      for (int change = 0; change < 1 + round % 40; change++) {
        text[random.nextInt(text.length)] = (char) random.nextInt(128);
      }
      LustreStripes.parse(new String(text), asked)
          .forEach(
              (name, stripes) -> LustreLayout.layout(64 * MIB, stripes, Map.of(), Set.of()));
      LustreStripes.servers(new String(text), new String(text));
    }
  }
}
