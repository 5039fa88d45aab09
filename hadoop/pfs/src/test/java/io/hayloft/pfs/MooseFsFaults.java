package io.hayloft.pfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.hayloft.pfs.io.MountHungException;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Copies, layouts and faults on a real MooseFS of three servers; scripts/pfs-mounted starts it and
 * runs this. Its name keeps it out of other runs.
 */
class MooseFsFaults {
  private static final int LENGTH = 8 << 20;
  private static final Path FILE = new Path("/faults/file");

  private final java.nio.file.Path work = java.nio.file.Path.of(System.getenv("PFS_WORK"));
  private final java.nio.file.Path root =
      java.nio.file.Path.of(System.getenv("PFS_MOUNT")).resolve("faults");
  private final Configuration conf = TestRoot.configure(new Configuration(), root);
  private final byte[] data = new byte[LENGTH];
  private PfsFileSystem fs;

  @BeforeEach
  void open() throws IOException {
    new Random(11).nextBytes(data);
    conf.set(PfsKeys.LAYOUT, "moosefs");
    conf.set(PfsKeys.TARGETS, "cs1=/.targets/cs1,cs2=/.targets/cs2,cs3=/.targets/cs3");
    conf.setInt(PfsKeys.COPIES, 3);
    conf.set(PfsKeys.HOST, "cs2");
    fs = (PfsFileSystem) TestRoot.open(conf);
  }

  @AfterEach
  void close() throws Exception {
    for (int n = 1; n <= 3; n++) {
      start(n);
    }
    fs.close();
  }

  private void write() throws IOException {
    try (FSDataOutputStream out = fs.create(FILE, true)) {
      out.write(data);
    }
  }

  private byte[] read() throws IOException {
    try (FSDataInputStream in = fs.open(FILE)) {
      return in.readAllBytes();
    }
  }

  private void kill(int server) throws Exception {
    TestRoot.run("mfschunkserver", "-c", work + "/cs" + server + "/cfg", "kill");
  }

  private void start(int server) throws Exception {
    new ProcessBuilder("mfschunkserver", "-c", work + "/cs" + server + "/cfg", "start")
        .redirectErrorStream(true)
        .redirectOutput(ProcessBuilder.Redirect.DISCARD)
        .start()
        .waitFor();
  }

  private void signalMaster(String signal) throws Exception {
    Set<String> pids = new TreeSet<>();
    ProcessHandle.allProcesses()
        .filter(process -> process.info().command().orElse("").endsWith("/mfsmaster"))
        .forEach(process -> pids.add(Long.toString(process.pid())));
    assertTrue(!pids.isEmpty(), "the master runs");
    for (String pid : pids) {
      TestRoot.run("kill", signal, pid);
    }
  }

  private Set<String> serversOf(java.nio.file.Path file) throws IOException {
    Configuration plain = TestRoot.configure(new Configuration(), root);
    plain.set(PfsKeys.LAYOUT, "moosefs");
    Set<String> hosts = new TreeSet<>();
    try (PfsFileSystem other = (PfsFileSystem) TestRoot.open(plain)) {
      FileStatus status =
          other.getFileStatus(new Path("pfs", null, "/" + root.relativize(file)));
      for (BlockLocation block : other.getFileBlockLocations(status, 0, status.getLen())) {
        hosts.addAll(List.of(block.getHosts()));
      }
    }
    return hosts;
  }

  @Test
  void copiesLieOnTheirServersAndTheSchedulerLearnsIt() throws IOException {
    write();
    assertEquals(Set.of("cs2"), serversOf(root.resolve("faults/file")), "the writer's own");
    for (int n : new int[] {1, 3}) {
      try (var entries = Files.list(root.resolve(".targets/cs" + n))) {
        assertEquals(Set.of("cs" + n), serversOf(entries.findFirst().orElseThrow()));
      }
    }
    assertEquals(0, tool("fsck", "/", "--read"));
  }

  private int tool(String... words) {
    PrintStream print = new PrintStream(new ByteArrayOutputStream());
    return new Tool(conf, print, System.err).run(words);
  }

  @Test
  void flushedBytesAreSeenThroughAnotherMount() throws IOException {
    java.nio.file.Path other =
        java.nio.file.Path.of(System.getenv("PFS_OTHER")).resolve("faults/faults/flushed");
    try (FSDataOutputStream out = fs.create(new Path("/faults/flushed"), true)) {
      for (int round = 1; round <= 5; round++) {
        out.write(data, 0, 10_000);
        out.hflush();
        assertEquals(10_000L * round, Files.readAllBytes(other).length);
      }
    }
  }

  @Test
  void aServerKilledWhileReadingCostsNoByte() throws Exception {
    write();
    kill(2);
    assertArrayEquals(data, read(), "the first copy's server is dead from the start");
    start(2);
  }

  @Test
  void aServerKilledWhileWritingLosesNoFileThatWasClosed() throws Exception {
    boolean closed = false;
    try (FSDataOutputStream out = fs.create(FILE, true)) {
      out.write(data, 0, LENGTH / 2);
      out.hflush();
      kill(3);
      out.write(data, LENGTH / 2, LENGTH / 2);
      out.close();
      closed = true;
    } catch (IOException e) {
      System.err.println("the writer was told: " + e);
    }
    if (closed) {
      assertArrayEquals(data, read());
    }
    start(3);
    waitForServers();
    if (closed) {
      assertTrue(tool("heal", "/faults", "--now") <= 1);
      assertEquals(0, tool("fsck", "/faults", "--read"));
    }
  }

  private static void waitForServers() throws InterruptedException {
    // The master counts a server in when it has reported its chunks.
    Thread.sleep(3_000);
  }

  @Test
  void aHungMasterEndsInAnErrorInTime() throws Exception {
    write();
    conf.set(PfsKeys.TIMEOUT, "2s");
    try (PfsFileSystem hasty = (PfsFileSystem) TestRoot.open(conf)) {
      signalMaster("-STOP");
      try {
        long before = System.nanoTime();
        MountHungException e =
            assertThrows(
                MountHungException.class,
                () -> hasty.getFileStatus(new Path("/faults/none" + System.nanoTime())));
        assertTrue(e.getMessage().contains("fs.pfs.timeout"), e.getMessage());
        assertTrue(System.nanoTime() - before < 10_000_000_000L);
      } finally {
        signalMaster("-CONT");
      }
    }
    assertArrayEquals(data, read(), "all is well again");
  }
}
