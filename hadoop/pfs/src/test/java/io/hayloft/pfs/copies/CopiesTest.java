package io.hayloft.pfs.copies;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.hayloft.pfs.PfsFileSystem;
import io.hayloft.pfs.PfsKeys;
import io.hayloft.pfs.TestRoot;
import io.hayloft.pfs.Tool;
import io.hayloft.pfs.read.Copy;
import io.hayloft.pfs.read.Source;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Copies on three directories that stand for three servers. */
class CopiesTest {
  private static final int LENGTH = 300_000;
  private static final Path FILE = new Path("/data/file");

  private final java.nio.file.Path root = TestRoot.of("copies");
  private final Configuration conf = TestRoot.configure(new Configuration(), root);
  private final byte[] data = new byte[LENGTH];
  private final java.nio.file.Path local = root.resolve("data/file");
  private PfsFileSystem fs;

  @BeforeEach
  void open() throws IOException {
    new Random(5).nextBytes(data);
    try (FileSystem plain = TestRoot.open(root)) {
      for (FileStatus old : plain.listStatus(new Path("/"))) {
        plain.delete(old.getPath(), true);
      }
    }
    Files.createDirectory(root.resolve(".copies"));
    for (int n = 1; n <= 3; n++) {
      Files.createDirectory(root.resolve(".copies/s" + n));
    }
    conf.set(PfsKeys.TARGETS, "s1=/.copies/s1,s2=/.copies/s2,s3=/.copies/s3");
    conf.setInt(PfsKeys.COPIES, 3);
    conf.set(PfsKeys.HOST, "s2");
    fs = (PfsFileSystem) TestRoot.open(conf);
  }

  @AfterEach
  void close() throws IOException {
    fs.close();
  }

  private void write(byte[] bytes) throws IOException {
    try (FSDataOutputStream out = fs.create(FILE, true)) {
      out.write(bytes);
    }
  }

  private byte[] read() throws IOException {
    try (FSDataInputStream in = fs.open(FILE)) {
      return in.readAllBytes();
    }
  }

  private List<java.nio.file.Path> copies() throws IOException {
    List<java.nio.file.Path> found = new ArrayList<>();
    for (int n = 1; n <= 3; n++) {
      try (DirectoryStream<java.nio.file.Path> entries =
          Files.newDirectoryStream(root.resolve(".copies/s" + n))) {
        entries.forEach(found::add);
      }
    }
    return found;
  }

  private CopyRecord record(String attribute) throws IOException {
    String text = Attribute.read(local, attribute);
    return text == null ? null : CopyRecord.parse(text);
  }

  private int tool(String... words) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    PrintStream print = new PrintStream(bytes);
    int code = new Tool(conf, print, print).run(words);
    print.flush();
    said = bytes.toString();
    return code;
  }

  private String said = "";

  /** Takes bytes away as a broken server would: the file's time stays. */
  private static void damage(java.nio.file.Path file, long length) throws IOException {
    FileTime time = Files.getLastModifiedTime(file);
    try (FileChannel channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
      channel.truncate(length);
    }
    Files.setLastModifiedTime(file, time);
  }

  @Test
  void aFileHasItsCopiesAndASeal() throws IOException {
    write(data);
    assertArrayEquals(data, Files.readAllBytes(local), "a plain file");
    assertEquals(2, copies().size());
    for (java.nio.file.Path copy : copies()) {
      assertArrayEquals(data, Files.readAllBytes(copy));
    }
    assertEquals(".copies/s2", record("file").first(), "hybrid: the writer's own server first");
    assertEquals(2, record("seal").copies().size());
    assertEquals(List.of(), fs.listXAttrs(FILE), "tools that copy attributes do not see ours");
    assertEquals(0, tool("fsck", "/"), said);
  }

  @Test
  void schedulersLearnOfEveryCompleteCopy() throws IOException {
    write(data);
    FileStatus status = fs.getFileStatus(FILE);
    List<String> hosts =
        new ArrayList<>(List.of(fs.getFileBlockLocations(status, 0, LENGTH)[0].getHosts()));
    hosts.sort(null);
    assertEquals(List.of("s1", "s2", "s3"), hosts);
  }

  @Test
  void aCopyThatMissedAnAppendIsFoundWhateverItsLength() throws IOException {
    write(data);
    CopyRecord seal = record("seal");
    Attribute.write(
        local,
        "seal",
        seal.sealed(seal.copies().subList(0, 1), seal.length(), seal.modifiedMs()).toString());
    assertEquals(1, tool("fsck", "/data"));
    assertTrue(said.contains("damaged"), said);
    assertEquals(0, tool("heal", "/data"), said);
    assertEquals(0, tool("fsck", "/data", "--read"), said);
  }

  @Test
  void aCreateThatFailsLeavesNothing() throws IOException {
    for (int n = 1; n <= 3; n++) {
      Files.delete(root.resolve(".copies/s" + n));
    }
    IOException e = assertThrows(IOException.class, () -> fs.create(FILE, true));
    assertTrue(e.getMessage().contains("mode 1733"), e.getMessage());
    assertFalse(fs.exists(FILE));
  }

  @Test
  void theFileIsThereFromTheStartAndSealedAtTheEnd() throws IOException {
    try (FSDataOutputStream out = fs.create(FILE, false)) {
      assertTrue(fs.exists(FILE));
      out.write(data);
      out.hflush();
      assertNull(record("seal"));
      assertArrayEquals(data, read(), "unsealed: read from the first");
    }
    assertNotNull(record("seal"));
  }

  @Test
  void everyByteIsReadWithAllCopiesButOneLost() throws IOException {
    for (int kept = 0; kept < 3; kept++) {
      write(data);
      List<java.nio.file.Path> all = new ArrayList<>(copies());
      all.add(0, local);
      for (int at = 0; at < all.size(); at++) {
        if (at != kept && at == 0) {
          damage(local, 0);
        } else if (at != kept && at == 1) {
          Files.delete(all.get(at));
        } else if (at != kept) {
          damage(all.get(at), LENGTH - 1);
        }
      }
      assertArrayEquals(data, read(), "kept copy " + kept);
      assertEquals(1, tool("fsck", "/data"), said);
      assertEquals(0, tool("heal", "/data"), said);
      assertEquals(0, tool("fsck", "/", "--read"), said);
      assertArrayEquals(data, Files.readAllBytes(local));
    }
  }

  @Test
  void theOtherCopyTakesOverInTheMiddle() throws IOException {
    write(data);
    try (FSDataInputStream in = fs.open(FILE)) {
      byte[] start = new byte[10_000];
      in.readFully(0, start);
      damage(local, 20_000);
      byte[] all = new byte[LENGTH];
      in.readFully(0, all);
      assertArrayEquals(data, all);
    }
  }

  @Test
  void twoReadersOfAHungCopyMoveOnOnce() throws IOException {
    write(data);
    Copies all =
        new Copies(root, Target.parse(conf.get(PfsKeys.TARGETS), root), "s2", 3, "hybrid");
    try (Source source = CopiesSource.open(all, local, failed -> {})) {
      Copy hung = source.current();
      assertTrue(source.moveOn(hung, new IOException("hung")));
      Copy second = source.current();
      assertNotSame(hung, second);
      assertTrue(source.moveOn(hung, new IOException("hung")), "the other reader of the same");
      assertSame(second, source.current());
    }
  }

  @Test
  void withNoCopyLeftTheErrorSaysWhatToDo() throws IOException {
    write(data);
    damage(local, 1);
    for (java.nio.file.Path copy : copies()) {
      Files.delete(copy);
    }
    IOException e = assertThrows(IOException.class, this::read);
    assertTrue(e.getMessage().contains("pfs fsck"), e.getMessage());
    assertEquals(1, tool("heal", "/data", "--now"));
    assertTrue(said.contains("restore it"), said);
  }

  @Test
  void copiesFollowTheFile() throws IOException {
    write(data);
    fs.setPermission(FILE, new FsPermission((short) 0600));
    for (java.nio.file.Path copy : copies()) {
      assertEquals(0600, (int) (Integer) Files.getAttribute(copy, "unix:mode") & 0777);
    }
    fs.setTimes(FILE, 1_000_000_000_000L, -1);
    assertEquals(0, tool("fsck", "/"), said);
    fs.truncate(FILE, 1000);
    assertEquals(0, tool("fsck", "/", "--read"), said);
    try (FSDataOutputStream out = fs.append(FILE)) {
      out.write(data, 1000, 500);
    }
    assertEquals(0, tool("fsck", "/", "--read"), said);
    assertEquals(1500, read().length);
    Path moved = new Path("/moved");
    assertTrue(fs.rename(FILE, moved));
    assertEquals(0, tool("fsck", "/", "--read"), said);
    assertEquals(2, copies().size());
    fs.delete(moved, false);
    assertEquals(0, copies().size(), "copies go with the file");
  }

  @Test
  void copiesOfReplacedAndTreeDeletedFilesGo() throws IOException {
    write(data);
    write(data);
    assertEquals(2, copies().size());
    fs.create(new Path("/other"), false).close();
    assertEquals(4, copies().size());
    fs.rename(new Path("/other"), FILE, Options.Rename.OVERWRITE);
    assertEquals(2, copies().size());
    fs.delete(new Path("/data"), true);
    assertEquals(0, copies().size());
  }

  @Test
  void whatOtherProgramsDoIsSeen() throws Exception {
    write(data);
    Files.copy(local, root.resolve("data/twin"), StandardCopyOption.COPY_ATTRIBUTES);
    assertEquals(1, tool("fsck", "/data"), "a copy by attributes has no copies of its own");
    assertTrue(said.contains("/data/twin  too-few"), said);
    fs.delete(new Path("/data/twin"), false);
    assertEquals(2, copies().size(), "its copies were never its own");
    Files.write(local, new byte[] {1, 2, 3});
    Files.setLastModifiedTime(local, FileTime.fromMillis(1_700_000_000_000L));
    assertArrayEquals(new byte[] {1, 2, 3}, read(), "another program's change is the truth");
    assertEquals(1, tool("fsck", "/data"));
    assertTrue(said.contains("changed"), said);
    assertEquals(0, tool("heal", "/data", "--json"), said);
    assertTrue(
        said.startsWith("{\"file\":\"/data/file\",\"problem\":\"changed\",\"where\":\"\"}"), said);
    assertEquals(0, tool("fsck", "/", "--read"), said);
    Files.createFile(root.resolve(".copies/s1/stray"));
    assertEquals(1, tool("fsck", "/"));
    assertTrue(said.contains("orphan"), said);
  }

  @Test
  void whatCannotBeLookedAtIsReportedAndTheRestGoesOn() throws IOException {
    write(data);
    java.nio.file.Path odd = Files.createDirectory(root.resolve("data/odd"));
    Attribute.write(odd, "copies", "many");
    Files.createFile(odd.resolve("file"));
    Files.delete(copies().get(0));
    java.nio.file.Path shut = Files.createDirectory(root.resolve("data/shut"));
    Files.setPosixFilePermissions(
        shut, java.nio.file.attribute.PosixFilePermissions.fromString("---------"));
    try {
      assertEquals(2, tool("fsck", "/"));
      assertTrue(said.contains("/data/odd/file  unreadable"), said);
      assertTrue(said.contains("/data/shut  unreadable"), said);
      assertTrue(said.contains("/data/file  missing"), said);
      assertFalse(said.contains("orphan"), said);
      assertEquals(2, tool("heal", "/data"), said);
      assertTrue(said.contains("2 left"), said);
    } finally {
      Files.setPosixFilePermissions(
          shut, java.nio.file.attribute.PosixFilePermissions.fromString("rwx------"));
      fs.delete(new Path("/data/odd"), true);
    }
    assertEquals(0, tool("fsck", "/", "--read"), said);
  }

  @Test
  void aChangeThatIsRefusedLeavesTheSeal() throws IOException {
    write(data);
    assertThrows(IOException.class, () -> fs.setOwner(FILE, "no such user", null));
    assertNotNull(record("seal"));
    assertEquals(0, tool("fsck", "/", "--read"), said);
  }

  @Test
  void aWriterWhoseFileWasReplacedSealsNotTheOther() throws IOException {
    FSDataOutputStream first = fs.create(FILE, true);
    FSDataOutputStream second = fs.create(FILE, true);
    second.write(data);
    second.hflush();
    first.close();
    assertNull(record("seal"));
    second.close();
    assertNotNull(record("seal"));
    assertEquals(0, tool("fsck", "/", "--read"), said);
  }

  @Test
  void anAttributeThatNobodyCouldReadIsNotWritten() throws IOException {
    Files.createDirectory(root.resolve("data"));
    java.nio.file.Path file = Files.createFile(root.resolve("data/plain"));
    assertThrows(IOException.class, () -> Attribute.write(file, "file", "x".repeat(4097)));
  }

  @Test
  void aDirectorySaysHowManyAndWhere() throws IOException {
    Files.createDirectory(root.resolve("data"));
    Attribute.write(root.resolve("data"), "copies", "2");
    Attribute.write(root.resolve("data"), "layout", "round-robin");
    write(data);
    assertEquals(1, copies().size());
    Attribute.write(root.resolve("data"), "copies", "many");
    try (FileSystem other = TestRoot.open(conf)) {
      IOException e = assertThrows(IOException.class, () -> other.create(FILE, true));
      assertTrue(e.getMessage().contains("user.hayloft.pfs.copies"), e.getMessage());
    }
  }

  @Test
  void layoutsSpreadOverServers() {
    List<Target> targets = Target.parse("a=/a,b=/b,c=/c,d=/d", root);
    int[] firsts = new int[4];
    for (int file = 0; file < 400; file++) {
      List<Target> round = CopyLayout.ROUND_ROBIN.choose(targets, 2, "b");
      assertEquals(2, round.stream().distinct().count());
      firsts[targets.indexOf(round.get(0))]++;
      List<Target> hybrid = CopyLayout.HYBRID.choose(targets, 3, "b");
      assertEquals("b", hybrid.get(0).host());
      assertEquals(3, hybrid.stream().distinct().count());
      assertEquals(4, CopyLayout.RANDOM.choose(targets, 4, "b").stream().distinct().count());
    }
    assertArrayEquals(new int[] {100, 100, 100, 100}, firsts);
    assertThrows(
        IllegalArgumentException.class, () -> CopyLayout.RANDOM.choose(targets, 5, "b"));
  }

  @Test
  void aServerThatTakesNoCopyIsLeftToHeal() throws IOException {
    Files.delete(root.resolve(".copies/s1"));
    write(data);
    assertArrayEquals(data, read());
    assertEquals(1, record("seal").copies().size());
    Files.createDirectory(root.resolve(".copies/s1"));
    assertEquals(1, tool("fsck", "/data"));
    assertEquals(0, tool("heal", "/data"), said);
    assertEquals(2, copies().size());
  }

  @Test
  void mistakesInTheConfigurationAreNamed() {
    for (String bad : List.of("a", "a=/../x", "a=/", "a=/x,b=/x", "a=/x y")) {
      conf.set(PfsKeys.TARGETS, bad);
      assertThrows(IllegalArgumentException.class, () -> TestRoot.open(conf), bad);
    }
    conf.set(PfsKeys.TARGETS, "a=/x");
    assertThrows(IllegalArgumentException.class, () -> TestRoot.open(conf), "too few servers");
    assertEquals(2, tool("fsck"));
    assertEquals(2, tool("fsck", "/", "--jason"));
    assertTrue(said.contains("no such option"), said);
  }

  @Test
  void recordsOfGarbageAreNoRecords() {
    assertNull(CopyRecord.parse(""));
    assertNull(CopyRecord.parse("2 uuid=x"));
    assertNull(CopyRecord.parse("1 uuid=../../etc inode=1 length=1 modified=1"));
    assertNull(CopyRecord.parse("1 uuid=" + java.util.UUID.randomUUID() + " inode=x"));
    assertFalse(Target.of(List.of(), "/etc").isPresent());
  }
}
