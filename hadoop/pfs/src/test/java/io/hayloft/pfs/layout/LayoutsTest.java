package io.hayloft.pfs.layout;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.StringWriter;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.log4j.Level;
import org.apache.log4j.Logger;
import org.apache.log4j.PatternLayout;
import org.apache.log4j.WriterAppender;
import org.junit.jupiter.api.Test;

/** From chunks of a provider to blocks for a scheduler. */
class LayoutsTest {
  private static final long MIB = 1 << 20;

  private final List<List<Path>> calls = new ArrayList<>();

  private static Layouts.Key key(String name, long modified, long length) {
    return new Layouts.Key(Path.of(name), 7, modified, length);
  }

  private LayoutProvider fixed(FileLayout layout) {
    return files -> {
      calls.add(List.copyOf(files));
      Map<Path, FileLayout> answer = new HashMap<>();
      files.forEach(file -> answer.put(file, layout));
      return answer;
    };
  }

  @Test
  void chunksOfABlockAreItsBlocks() throws IOException {
    FileLayout layout =
        new FileLayout(64 * MIB, List.of(List.of("10.0.0.1"), List.of("s2", "s3"), List.of("s1")));
    Layouts layouts = new Layouts(fixed(layout), "10.0.0.1=worker1, s2 = worker2");
    BlockLocation[] blocks = layouts.locate(key("/f", 1, 130 * MIB), 64 * MIB, 65 * MIB, 66 * MIB);
    assertEquals(2, blocks.length);
    assertEquals(64 * MIB, blocks[0].getOffset());
    assertArrayEquals(new String[] {"worker2", "s3"}, blocks[0].getHosts());
    assertEquals(2 * MIB, blocks[1].getLength());
    assertArrayEquals(new String[] {"s1"}, blocks[1].getHosts());
    assertArrayEquals(
        new String[] {"worker1"},
        layouts.locate(key("/f", 1, 130 * MIB), 64 * MIB, 0, 1)[0].getHosts());
    assertEquals(1, calls.size(), "the second answer is cached");
    layouts.locate(key("/f", 2, 130 * MIB), 64 * MIB, 0, 1);
    assertEquals(2, calls.size(), "a changed file is asked for again");
  }

  @Test
  void aStripedBlockHasTheHostsWithMostBytes() throws IOException {
    FileLayout striped =
        new FileLayout(MIB, List.of(List.of("a"), List.of("b"), List.of("a"), List.of("c"),
            List.of("d")));
    Layouts layouts = new Layouts(fixed(striped), "");
    String[] hosts = layouts.locate(key("/f", 1, 64 * MIB), 64 * MIB, 0, MIB)[0].getHosts();
    assertEquals(3, hosts.length);
    assertEquals("a", hosts[0]);
  }

  @Test
  void aLengthThatOverflowsEndsAtTheFile() throws IOException {
    Layouts layouts = new Layouts(fixed(FileLayout.whole(List.of("a"))), "");
    assertEquals(1, layouts.locate(key("/f", 1, 5), 64 * MIB, 1, Long.MAX_VALUE).length);
  }

  @Test
  void aFileOfExabytesHasAsManyBlocksAsMemoryTakes() throws IOException {
    Layouts layouts = new Layouts(fixed(FileLayout.whole(List.of("a"))), "");
    long length = Long.MAX_VALUE;
    BlockLocation[] blocks = layouts.locate(key("/f", 1, length), MIB, 0, length);
    assertTrue(blocks.length <= 1 << 20, "blocks: " + blocks.length);
    BlockLocation last = blocks[blocks.length - 1];
    assertEquals(length, last.getOffset() + last.getLength());
  }

  @Test
  void manyFilesAreFewCalls() {
    Layouts layouts = new Layouts(fixed(FileLayout.whole(List.of("a"))), "");
    List<Layouts.Key> keys = new ArrayList<>();
    for (int at = 0; at < 250; at++) {
      keys.add(key("/f" + at, 1, 5));
    }
    layouts.prefetch(keys);
    assertEquals(3, calls.size());
    keys.forEach(key -> layouts.locate(key, MIB, 0, 5));
    assertEquals(3, calls.size());
  }

  @Test
  void aProviderThatFailsIsWarnedOfOnce() {
    StringWriter text = new StringWriter();
    WriterAppender appender = new WriterAppender(new PatternLayout("%m%n"), text);
    Logger logger = Logger.getLogger(Layouts.class);
    Level before = logger.getLevel();
    logger.setLevel(Level.WARN);
    logger.addAppender(appender);
    try {
      Layouts layouts =
          new Layouts(
              files -> {
                throw new IOException("no tool");
              },
              "");
      for (int at = 0; at < 3; at++) {
        BlockLocation[] blocks = layouts.locate(key("/f" + at, 1, 5), MIB, 0, 5);
        assertArrayEquals(
            new String[] {"localhost"}, hosts(blocks[0]), "any host is as near as another");
      }
    } finally {
      logger.removeAppender(appender);
      logger.setLevel(before);
    }
    assertEquals(1, text.toString().lines().count(), text.toString());
  }

  private static String[] hosts(BlockLocation block) {
    try {
      return block.getHosts();
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void aBadTableOfHostsNamesTheBadPart() {
    assertThrows(IllegalArgumentException.class, () -> new Layouts(fixed(null), "a=b,c"));
  }
}
