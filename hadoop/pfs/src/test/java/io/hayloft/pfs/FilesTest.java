package io.hayloft.pfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.permission.FsAction;
import org.apache.hadoop.fs.permission.FsPermission;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Files as plain Java and as Hadoop see them, side by side. */
class FilesTest {
  private final java.nio.file.Path root = TestRoot.of("files");
  private PfsFileSystem fs;

  @BeforeEach
  void open() throws IOException {
    fs = (PfsFileSystem) TestRoot.open(root);
    for (FileStatus old : fs.listStatus(new Path("/"))) {
      fs.delete(old.getPath(), true);
    }
  }

  @AfterEach
  void close() throws IOException {
    fs.close();
  }

  private void write(String path, String text) throws IOException {
    try (FSDataOutputStream out = fs.create(new Path(path), true)) {
      out.write(text.getBytes(StandardCharsets.UTF_8));
    }
  }

  private String read(String path) throws IOException {
    try (FSDataInputStream in = fs.open(new Path(path))) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  @Test
  void otherProgramsOfTheMountSeePlainFiles() throws IOException {
    write("/a/b", "text");
    assertEquals("text", Files.readString(root.resolve("a/b")));
    Files.writeString(root.resolve("a/c"), "theirs");
    assertEquals("theirs", read("/a/c"));
  }

  @Test
  void oddNamesAreNames() throws IOException {
    String[] names = {"a:b", "new\nline", " ", "ü€", "a%20b", "*?[x]{y}", "-rf", "back\\slash",
        "#", ".hidden", "tab\there", "x".repeat(255)};
    Path directory = fs.makeQualified(new Path("/odd"));
    fs.mkdirs(directory);
    Set<String> wanted = new HashSet<>();
    for (String name : names) {
      Path path = new Path("pfs", null, "/odd/" + name);
      fs.create(path, false).close();
      assertTrue(Files.isRegularFile(root.resolve("odd").resolve(name)), name);
      wanted.add(name);
    }
    Set<String> listed = new HashSet<>();
    for (FileStatus status : fs.listStatus(directory)) {
      listed.add(status.getPath().getName());
      assertEquals(0, fs.getFileStatus(status.getPath()).getLen());
    }
    assertEquals(wanted, listed);
    assertTrue(fs.delete(directory, true));
  }

  @Test
  void aNameThatIsNotUtf8IsLeftOutAndDeletedWithItsDirectory() throws Exception {
    fs.mkdirs(new Path("/bytes"));
    String script = "cd \"$1\" && touch \"$(printf 'a\\377b')\" fine";
    Process made =
        new ProcessBuilder("sh", "-c", script, "sh", root.resolve("bytes").toString()).start();
    assertEquals(0, made.waitFor());
    FileStatus[] listed = fs.listStatus(new Path("/bytes"));
    assertEquals(1, listed.length);
    assertEquals("fine", listed[0].getPath().getName());
    assertTrue(fs.delete(new Path("/bytes"), true));
    assertFalse(Files.exists(root.resolve("bytes")));
  }

  @Test
  void dotsDoNotLeaveTheRoot() {
    Path above = new Path("pfs", null, "/../../../etc/passwd");
    assertThrows(FileNotFoundException.class, () -> fs.open(above));
  }

  /** Runs the same thing sixteen times at once; gives how often it returned true. */
  private static int winners(Callable<Boolean> attempt) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(16);
    try {
      List<Callable<Boolean>> attempts = new ArrayList<>();
      IntStream.range(0, 16).forEach(n -> attempts.add(attempt));
      int won = 0;
      for (Future<Boolean> each : threads.invokeAll(attempts)) {
        won += each.get() ? 1 : 0;
      }
      return won;
    } finally {
      threads.shutdownNow();
    }
  }

  @Test
  void ofManyCreatorsOneWins() throws Exception {
    for (int round = 0; round < 20; round++) {
      Path path = new Path("/race" + round);
      assertEquals(
          1,
          winners(
              () -> {
                try {
                  fs.create(path, false).close();
                  return true;
                } catch (FileAlreadyExistsException e) {
                  return false;
                }
              }));
    }
  }

  @Test
  void ofManyRenamesToAFreeNameOneWins() throws Exception {
    for (int round = 0; round < 20; round++) {
      Path to = new Path("/target" + round);
      java.util.concurrent.atomic.AtomicInteger number =
          new java.util.concurrent.atomic.AtomicInteger();
      int won =
          winners(
              () -> {
                Path from = new Path("/source-" + to.getName() + "-" + number.incrementAndGet());
                fs.create(from, false).close();
                return fs.rename(from, to);
              });
      assertEquals(1, won);
    }
  }

  @Test
  void twoWritersOfOneNameDoNotMix() throws IOException {
    FSDataOutputStream first = fs.create(new Path("/two"), true);
    first.write("first".getBytes(StandardCharsets.UTF_8));
    FSDataOutputStream second = fs.create(new Path("/two"), true);
    second.write("2nd".getBytes(StandardCharsets.UTF_8));
    second.close();
    first.close();
    assertEquals("2nd", read("/two"), "the name belongs to the last creator");
  }

  @Test
  void aReaderOfAReplacedFileReadsOn() throws IOException {
    write("/old", "before");
    try (FSDataInputStream in = fs.open(new Path("/old"))) {
      write("/old", "after");
      assertEquals("before", new String(in.readAllBytes(), StandardCharsets.UTF_8));
    }
    assertEquals("after", read("/old"));
  }

  @Test
  void renameWithOverwriteReplaces() throws IOException {
    write("/from", "new");
    write("/to", "old");
    fs.rename(new Path("/from"), new Path("/to"), Options.Rename.OVERWRITE);
    assertEquals("new", read("/to"));
    assertFalse(fs.exists(new Path("/from")));
  }

  @Test
  void flushedBytesAreSeenByOthers() throws IOException {
    try (FSDataOutputStream out = fs.create(new Path("/flushed"), true)) {
      out.write("one".getBytes(StandardCharsets.UTF_8));
      assertEquals("", Files.readString(root.resolve("flushed")), "gathered");
      out.hflush();
      assertEquals("one", Files.readString(root.resolve("flushed")));
      out.write("two".getBytes(StandardCharsets.UTF_8));
      out.hsync();
      assertEquals("onetwo", Files.readString(root.resolve("flushed")));
    }
  }

  @Test
  void truncateCutsAndAppendGoesOn() throws IOException {
    write("/cut", "0123456789");
    assertTrue(fs.truncate(new Path("/cut"), 4));
    try (FSDataOutputStream out = fs.append(new Path("/cut"))) {
      assertEquals(4, out.getPos());
      out.write('x');
    }
    assertEquals("0123x", read("/cut"));
    assertThrows(IllegalArgumentException.class, () -> fs.truncate(new Path("/cut"), 6));
  }

  @Test
  void attributesAreTheSystemsOwn() throws IOException {
    write("/attr", "x");
    fs.setXAttr(new Path("/attr"), "user.colour", new byte[] {1, 2});
    var view =
        Files.getFileAttributeView(
            root.resolve("attr"), java.nio.file.attribute.UserDefinedFileAttributeView.class);
    assertEquals(List.of("colour"), view.list());
    assertArrayEquals(new byte[] {1, 2}, fs.getXAttr(new Path("/attr"), "user.colour"));
    assertThrows(
        IOException.class,
        () ->
            fs.setXAttr(
                new Path("/attr"), "user.colour", null, EnumSet.of(XAttrSetFlag.CREATE)));
    fs.removeXAttr(new Path("/attr"), "user.colour");
    assertEquals(List.of(), fs.listXAttrs(new Path("/attr")));
    assertThrows(
        IOException.class,
        () -> fs.setXAttr(new Path("/attr"), "user.hayloft.pfs.file", new byte[1]));
    fs.setPermission(new Path("/attr"), new FsPermission((short) 0640));
    fs.mkdirs(new Path("/sticky"));
    fs.setPermission(new Path("/sticky"), new FsPermission((short) 01755));
    assertEquals(01755, fs.getFileStatus(new Path("/sticky")).getPermission().toShort());
    assertEquals(0640, fs.getFileStatus(new Path("/attr")).getPermission().toShort());
    fs.access(new Path("/attr"), FsAction.READ_WRITE);
  }

  @Test
  void linksAreFollowedAndTold() throws IOException {
    write("/dir/real", "x");
    FileSystem.enableSymlinks();
    fs.createSymlink(new Path("/dir/real"), new Path("/links/link"), true);
    assertEquals("x", read("/links/link"));
    assertEquals(
        "../dir/real", Files.readSymbolicLink(root.resolve("links/link")).toString());
    assertEquals(
        fs.makeQualified(new Path("/dir/real")), fs.getLinkTarget(new Path("/links/link")));
    assertTrue(fs.getFileLinkStatus(new Path("/links/link")).isSymlink());
    fs.delete(new Path("/dir/real"), false);
    FileStatus[] broken = fs.listStatus(new Path("/links"));
    assertTrue(broken[0].isSymlink(), "a link to nothing is listed");
    fs.createSymlink(new Path("/dir"), new Path("/links/tree"), false);
    fs.mkdirs(new Path("/dir/kept"));
    assertTrue(fs.delete(new Path("/links"), true));
    assertTrue(fs.exists(new Path("/dir/kept")), "what a link leads to stays");
  }

  @Test
  void aHundredThousandFilesAreListedPageByPage() throws IOException {
    // A mounted file system takes its time to create them.
    int count = System.getProperty("hayloft.pfs.test.root", "").isEmpty() ? 100_000 : 10_000;
    java.nio.file.Path many = Files.createDirectories(root.resolve("many"));
    for (int at = 0; at < count; at++) {
      Files.createFile(many.resolve("file" + at));
    }
    RemoteIterator<FileStatus> entries = fs.listStatusIterator(new Path("/many"));
    Set<String> seen = new HashSet<>();
    while (entries.hasNext()) {
      seen.add(entries.next().getPath().getName());
    }
    assertEquals(count, seen.size());
    assertTrue(fs.delete(new Path("/many"), true));
  }

  @Test
  void aDirectoryThatIsNotMountedIsRefused() {
    Configuration conf = TestRoot.configure(new Configuration(), root);
    conf.setBoolean(PfsKeys.MUST_BE_MOUNT, true);
    IOException e = assertThrows(IOException.class, () -> TestRoot.open(conf));
    assertTrue(e.getMessage().contains("is not mounted"), e.getMessage());
    conf.set(PfsKeys.ROOT, root + "/missing");
    e = assertThrows(IOException.class, () -> TestRoot.open(conf));
    assertTrue(e.getMessage().contains("mount the parallel file system there"), e.getMessage());
    conf.unset(PfsKeys.ROOT);
    assertThrows(IllegalArgumentException.class, () -> TestRoot.open(conf));
  }

  @Test
  void realMountPointsPass() throws IOException {
    assertTrue(MountCheck.isMountPoint(java.nio.file.Path.of("/proc")));
    assertTrue(MountCheck.isMountPoint(java.nio.file.Path.of("/")));
    assertFalse(MountCheck.isMountPoint(root));
    assertEquals("/a b\\c\n", MountCheck.unescape("/a\\040b\\134c\\012"));
    assertEquals("/a\\9", MountCheck.unescape("/a\\9"));
  }

  @Test
  void aNamedFileSystemHasItsOwnRoot() throws Exception {
    java.nio.file.Path other = TestRoot.of("named");
    Configuration conf = TestRoot.configure(new Configuration(), root);
    conf.set(PfsKeys.ROOT + ".scratch", other.toString());
    java.net.URI uri = java.net.URI.create("pfs://scratch/");
    try (FileSystem named = FileSystem.newInstance(uri, conf)) {
      named.create(new Path("/here"), true).close();
      assertTrue(Files.isRegularFile(other.resolve("here")));
      assertEquals("pfs://scratch/here", named.listStatus(new Path("/"))[0].getPath().toString());
      assertEquals(0, named.addDelegationTokens("me", null).length);
      assertThrows(IllegalArgumentException.class, () -> named.open(new Path("pfs:///here")));
    }
    var context = org.apache.hadoop.fs.FileContext.getFileContext(uri, conf);
    assertEquals(0, context.getFileStatus(new Path("/here")).getLen());
  }

  @Test
  void jsonIsPlainAscii() {
    assertEquals(
        "{\"a\":[1,\"\\u00fc\\u000a\\\"\\\\\"]}",
        Json.of(java.util.Map.of("a", List.of(1, "ü\n\"\\"))));
  }

  @Test
  void badNumbersAreRefusedByName() {
    Configuration conf = TestRoot.configure(new Configuration(), root);
    conf.set(PfsKeys.READAHEAD, "1");
    IllegalArgumentException e =
        assertThrows(IllegalArgumentException.class, () -> TestRoot.open(conf));
    assertTrue(e.getMessage().contains(PfsKeys.READAHEAD), e.getMessage());
  }
}
