package io.hayloft.pfs.layout;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.hayloft.pfs.PfsKeys;
import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.Test;

/** What tools of real file systems printed, and what broken ones might. */
class ProvidersTest {
  /** Of mfsfileinfo 3.0.117. */
  private static final String MOOSEFS =
      String.join(
          "\n",
          "/mnt/a b:",
          "\tchunk 0: 0000000000000002_00000001 / (id:2 ver:1)",
          "\t\tcopy 1: 10.199.0.1:9422 (status:VALID)",
          "\t\tcopy 2: 10.199.0.3:9422 (status:VALID)",
          "\tchunk 1: 0000000000000003_00000001 / (id:3 ver:1)",
          "\t\tcopy 1: 10.199.0.1:9422 (status:VALID)",
          "\t\tcopy 2: 10.199.0.2:9422 (status:WRONG VERSION)",
          "/mnt/empty:",
          "\tno chunks - empty file",
          "/mnt/nosuch: realpath error on (/mnt/nosuch): ENOENT (No such file or directory)",
          "/mnt/d: Operation not permitted",
          "/mnt/last:",
          "\tchunk 2: 0000000000000009_00000001 / (id:9 ver:1)",
          "\t\tno valid copies !!!",
          "");

  /** Of getfattr on a replicated volume of GlusterFS 10. */
  private static final String GLUSTER =
      "# file: /mnt/file\n"
          + "trusted.glusterfs.pathinfo=\"(<DISTRIBUTE:vol-dht> (<REPLICATE:vol-replicate-0> "
          + "<POSIX(/bricks/1):node1:/bricks/1/file> "
          + "<POSIX(/bricks/2):node2:/bricks/2/file>))\"\n\n"
          + "getfattr: /mnt/gone: No such file or directory\n"
          + "# file: /mnt/two\\012lines\n"
          + "trusted.glusterfs.pathinfo=\"(<DISTRIBUTE:vol-dht> (<REPLICATE:vol-replicate-1> "
          + "<POSIX(/bricks/1):node3:/bricks/1/two\\012lines>))\"\n\n";

  private static Map<String, Path> asked(String... names) {
    Map<String, Path> asked = new HashMap<>();
    for (String name : names) {
      asked.put(name, Path.of(name));
    }
    return asked;
  }

  @Test
  void mooseFsChunksAreRead() {
    var found =
        MooseFsLayout.parse(
            MOOSEFS, asked("/mnt/a b", "/mnt/empty", "/mnt/nosuch", "/mnt/d", "/mnt/last"));
    assertEquals(
        List.of(List.of("10.199.0.1", "10.199.0.3"), List.of("10.199.0.1")),
        found.get(Path.of("/mnt/a b")).servers());
    assertEquals(64L << 20, found.get(Path.of("/mnt/a b")).chunkSize());
    assertTrue(found.get(Path.of("/mnt/empty")).servers().isEmpty());
    assertEquals(
        List.of(List.of(), List.of(), List.of()), found.get(Path.of("/mnt/last")).servers());
    assertFalse(found.containsKey(Path.of("/mnt/nosuch")), "an error is no layout");
    assertFalse(found.containsKey(Path.of("/mnt/d")), "a directory has none");
  }

  @Test
  void filesThatWereNotAskedForAreNoAnswers() {
    assertEquals(Map.of(), MooseFsLayout.parse(MOOSEFS, asked("/mnt/b")));
  }

  @Test
  void aChunkNumberOutOfOrderOrTooLargeVoidsTheFile() {
    String huge = "/mnt/f:\n\tchunk 9999999: x\n\t\tcopy 1: h:1 (status:VALID)\n";
    assertEquals(Map.of(), MooseFsLayout.parse(huge, asked("/mnt/f")));
    String back = "/mnt/f:\n\tchunk 1: x\n\tchunk 0: x\n";
    assertEquals(Map.of(), MooseFsLayout.parse(back, asked("/mnt/f")));
    String early = "/mnt/f:\n\t\tcopy 1: h:1 (status:VALID)\n";
    assertEquals(Map.of(), MooseFsLayout.parse(early, asked("/mnt/f")));
  }

  @Test
  void garbageNeverThrows() {
    Random random = new Random(1);
    for (int round = 0; round < 2_000; round++) {
      char[] text = MOOSEFS.toCharArray();
      for (int change = 0; change < 1 + round % 40; change++) {
        text[random.nextInt(text.length)] = (char) random.nextInt(128);
      }
      MooseFsLayout.parse(new String(text), asked("/mnt/a b", "/mnt/last"));
      GlusterLayout.parse(new String(text), asked("/mnt/a b"));
      char[] gluster = GLUSTER.toCharArray();
      gluster[random.nextInt(gluster.length)] = (char) random.nextInt(128);
      GlusterLayout.parse(new String(gluster), asked("/mnt/file"));
    }
  }

  @Test
  void glusterBricksAreRead() {
    Path odd = Path.of("/mnt/two\nlines");
    Map<String, Path> asked = asked("/mnt/file", "/mnt/gone");
    asked.put(FileAttributes.printed(odd.toString()), odd);
    var found = GlusterLayout.parse(GLUSTER, asked);
    assertEquals(
        Map.of(
            Path.of("/mnt/file"), FileLayout.whole(List.of("node1", "node2")),
            odd, FileLayout.whole(List.of("node3"))),
        found);
    String six = "# file: /mnt/six\nglusterfs.pathinfo=\"(<POSIX(/b):fd00::1:/b/f>)\"";
    assertEquals(
        List.of(List.of("fd00::1")),
        GlusterLayout.parse(six, asked("/mnt/six")).get(Path.of("/mnt/six")).servers());
    assertEquals(Map.of(), GlusterLayout.parse(six, asked("/mnt/file")), "it was not asked for");
    String none = "getfattr: /mnt/file: trusted.glusterfs.pathinfo: No such attribute";
    assertEquals(Map.of(), GlusterLayout.parse(none, asked("/mnt/file")));
  }

  @Test
  void aToolThatIsMissingSaysWhatToInstall() {
    var e =
        assertThrows(IOException.class, () -> ToolOutput.of(List.of("no-such-tool-of-ours"), 1000));
    assertTrue(e.getMessage().contains("install it"), e.getMessage());
  }

  @Test
  void aToolThatHangsOrPrintsForEverIsStopped() {
    long before = System.nanoTime();
    var hung = assertThrows(IOException.class, () -> ToolOutput.of(List.of("sleep", "60"), 200));
    assertTrue(hung.getMessage().contains("fs.pfs.layout.timeout"), hung.getMessage());
    assertThrows(IOException.class, () -> ToolOutput.of(List.of("yes"), 20_000));
    assertTrue(System.nanoTime() - before < 15_000_000_000L, "both ended early");
  }

  @Test
  void aToolReadsItsInputHoweverLongAndWhateverItPrints() throws IOException {
    String input = "line\n".repeat(100_000);
    assertEquals(input, ToolOutput.of(List.of("cat"), input, 20_000));
    assertEquals("", ToolOutput.of(List.of("true"), input, 20_000), "it read nothing");
  }

  @Test
  void aTimeThatEndsEveryToolIsRefused() {
    for (String wrong : List.of("0", "-1s", "400d")) {
      Configuration conf = new Configuration();
      conf.set(PfsKeys.LAYOUT_TIMEOUT, wrong);
      for (String provider :
          List.of("moosefs", "gluster", "cephfs", "lustre", "orangefs")) {
        var e =
            assertThrows(
                IllegalArgumentException.class,
                () -> Layouts.provider(provider, conf, Path.of("/")));
        assertTrue(e.getMessage().contains(PfsKeys.LAYOUT_TIMEOUT), e.getMessage());
      }
    }
  }

  @Test
  void aWrongProviderNamesTheChoices() {
    var e =
        assertThrows(
            IllegalArgumentException.class,
            () -> Layouts.provider("lustr", new Configuration(), Path.of("/")));
    String names = "posix, moosefs, gluster, cephfs, lustre, orangefs";
    assertTrue(e.getMessage().contains(names), e.getMessage());
  }
}
