package io.hayloft.pfs.copies;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.hayloft.pfs.PfsFileSystem;
import io.hayloft.pfs.PfsKeys;
import io.hayloft.pfs.TestRoot;
import io.hayloft.pfs.layout.FileLayout;
import io.hayloft.pfs.layout.LayoutProvider;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Copies on directories that stand for racks, of whose servers the layout tells. */
class RackCopiesTest {
  private static final int BLOCK = 1 << 20;
  private static final org.apache.hadoop.fs.Path FILE = new org.apache.hadoop.fs.Path("/data/f");

  private final Path root = TestRoot.of("rack-copies");
  private final Configuration conf = TestRoot.configure(new Configuration(), root);
  private PfsFileSystem fs;

  /** Each block of a file is on another server; those of copies are called after the rack. */
  public static final class ByDirectory implements LayoutProvider {
    @Override
    public Map<Path, FileLayout> locate(List<Path> files) {
      Map<Path, FileLayout> found = new HashMap<>();
      for (Path file : files) {
        String in = file.getParent().getFileName().toString();
        found.put(file, new FileLayout(BLOCK, List.of(List.of(in + "-a"), List.of(in + "-b"))));
      }
      return found;
    }
  }

  @BeforeEach
  void open() throws IOException {
    for (String rack : List.of("r1", "r2")) {
      Files.createDirectories(root.resolve(".copies/" + rack));
    }
    conf.set(PfsKeys.LAYOUT, ByDirectory.class.getName());
    conf.setInt(PfsKeys.BLOCK_SIZE, BLOCK);
    conf.set(PfsKeys.TARGETS, "/dc/r1=/.copies/r1,/dc/r2=/.copies/r2");
    conf.setInt(PfsKeys.COPIES, 2);
    conf.set(PfsKeys.HOST, "/dc/r2");
    fs = (PfsFileSystem) TestRoot.open(conf);
    try (FSDataOutputStream out = fs.create(FILE, true)) {
      out.write(new byte[3 * BLOCK]);
    }
  }

  @AfterEach
  void close() throws IOException {
    fs.delete(FILE, false);
    fs.close();
  }

  private BlockLocation[] blocks(long start, long length) throws IOException {
    FileStatus status = fs.getFileStatus(FILE);
    return fs.getFileBlockLocations(status, start, length);
  }

  @Test
  void theWritersRackHasTheFileAndTheOtherACopy() throws IOException {
    CopyRecord seal =
        CopyRecord.parse(Attribute.read(root.resolve("data/f"), CopyRecord.SEAL));
    assertEquals(".copies/r2", seal.first());
    assertEquals(List.of(".copies/r1"), seal.copies());
  }

  @Test
  void schedulersLearnOfTheServersInEachRack() throws IOException {
    BlockLocation[] all = blocks(0, 3 * BLOCK);
    assertEquals(3, all.length);
    assertArrayEquals(new String[] {"data-a", "r1-a"}, all[0].getHosts());
    assertArrayEquals(new String[] {"data-b", "r1-b"}, all[1].getHosts());
    assertArrayEquals(new String[] {"data-a", "r1-a"}, all[2].getHosts());
    assertArrayEquals(new String[] {"data-b", "r1-b"}, blocks(BLOCK + 5, 1)[0].getHosts());
  }

  @Test
  void aCopyThatIsMissingOrShortTellsNothing() throws IOException {
    Path copy;
    try (var entries = Files.list(root.resolve(".copies/r1"))) {
      copy = entries.findFirst().orElseThrow();
    }
    Files.write(copy, new byte[BLOCK]);
    assertArrayEquals(new String[] {"data-a"}, blocks(0, 1)[0].getHosts());
    Files.delete(copy);
    assertArrayEquals(new String[] {"data-a"}, blocks(0, 1)[0].getHosts());
  }

  @Test
  void racksAndServersCanBeMixed() throws IOException {
    conf.set(PfsKeys.TARGETS, "server1=/.copies/r1,/dc/r2=/.copies/r2");
    try (PfsFileSystem mixed = (PfsFileSystem) TestRoot.open(conf)) {
      BlockLocation block = mixed.getFileBlockLocations(mixed.getFileStatus(FILE), 0, 1)[0];
      assertEquals(Set.of("data-a", "server1"), new HashSet<>(List.of(block.getHosts())));
    }
  }

  @Test
  void aRackNeedsAName() {
    for (String wrong : List.of("/=/.copies/r1", "//a=/.copies/r1", "/a b=/.copies/r1")) {
      assertThrows(IllegalArgumentException.class, () -> Target.parse(wrong, root), wrong);
    }
  }
}
