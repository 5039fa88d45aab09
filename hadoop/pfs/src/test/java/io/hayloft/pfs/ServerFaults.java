package io.hayloft.pfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.hayloft.pfs.io.MountHungException;
import java.io.IOException;
import java.nio.file.Files;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
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
 * What every parallel file system must stand, on servers that scripts/pfs-mounted runs in hosts of
 * their own.
 */
abstract class ServerFaults {
  static final int LENGTH = 8 << 20;
  static final int SERVERS = 3;
  static final Path FILE = new Path("/faults/file");

  /** Servers come back and know each other again within this. */
  private static final long WHOLE_NS = TimeUnit.SECONDS.toNanos(90);

  final java.nio.file.Path work = java.nio.file.Path.of(System.getenv("PFS_WORK"));
  final java.nio.file.Path root =
      java.nio.file.Path.of(System.getenv("PFS_MOUNT")).resolve("faults");
  final java.nio.file.Path other =
      java.nio.file.Path.of(System.getenv("PFS_OTHER")).resolve("faults");
  final Configuration conf = plain();
  final byte[] data = new byte[LENGTH];
  PfsFileSystem fs;

  /** Something that may not be so yet. */
  interface Condition {
    boolean holds() throws Exception;
  }

  /** The command that starts a server in its host. */
  abstract String[] server(String host);

  /** The servers that hold bytes of {@link #FILE} or of its copies. */
  abstract Set<String> servers() throws Exception;

  /** Mends what a dead server missed, and sees that all is as it was written. */
  abstract void checkWhole() throws Exception;

  private Configuration plain() {
    Configuration made = TestRoot.configure(new Configuration(), root);
    made.set(PfsKeys.LAYOUT, System.getenv("PFS_KIND"));
    return made;
  }

  @BeforeEach
  void open() throws IOException {
    new Random(11).nextBytes(data);
    Files.createDirectories(root);
    fs = (PfsFileSystem) TestRoot.open(conf);
  }

  @AfterEach
  void close() throws Exception {
    startAll();
    fs.close();
  }

  final void write() throws IOException {
    try (FSDataOutputStream out = fs.create(FILE, true)) {
      out.write(data);
    }
  }

  final byte[] read() throws IOException {
    try (FSDataInputStream in = fs.open(FILE)) {
      return in.readAllBytes();
    }
  }

  /** What the kernel has of a file is read whatever the servers say. */
  static void forgetCached() throws IOException {
    Files.writeString(java.nio.file.Path.of("/proc/sys/vm/drop_caches"), "3");
  }

  static void await(String what, Condition condition) throws Exception {
    long end = System.nanoTime() + WHOLE_NS;
    while (!condition.holds()) {
      assertTrue(System.nanoTime() < end, "not in time: " + what);
      TimeUnit.MILLISECONDS.sleep(200);
    }
  }

  private static List<String> processes(String host) throws Exception {
    String listed = TestRoot.run("ip", "netns", "pids", host).strip();
    return listed.isEmpty() ? List.of() : List.of(listed.split("\\s+"));
  }

  /** Signals every process of a host. */
  static void signal(String signal, String host) throws Exception {
    List<String> command = new ArrayList<>(List.of("kill", signal));
    command.addAll(processes(host));
    TestRoot.run(command.toArray(new String[0]));
  }

  final void kill(String host) throws Exception {
    signal("-KILL", host);
    await("the end of " + host, () -> processes(host).isEmpty());
  }

  private void startAll() throws Exception {
    for (int n = 1; n <= SERVERS; n++) {
      start("cs" + n);
    }
  }

  /** Starts a server unless it runs. */
  final void start(String host) throws Exception {
    if (!processes(host).isEmpty()) {
      return;
    }
    List<String> command = new ArrayList<>(List.of(work + "/" + host + "/in"));
    command.addAll(List.of(server(host)));
    // A daemon keeps what it prints to, so nothing waits for the end of that.
    Process process =
        new ProcessBuilder(command)
            .redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
            .start();
    assertEquals(0, process.waitFor(), command.toString());
  }

  /** The servers of a file as a new file system tells them, which has nothing cached. */
  final Set<String> serversOf(java.nio.file.Path file) throws IOException {
    Set<String> hosts = new TreeSet<>();
    try (PfsFileSystem fresh = (PfsFileSystem) TestRoot.open(plain())) {
      FileStatus status =
          fresh.getFileStatus(new Path("pfs", null, "/" + root.relativize(file)));
      for (BlockLocation block : fresh.getFileBlockLocations(status, 0, status.getLen())) {
        hosts.addAll(List.of(block.getHosts()));
      }
    }
    return hosts;
  }

  /** How long another mount may go on with what it knew of a file. */
  Duration keptByMounts() {
    return Duration.ZERO;
  }

  @Test
  void flushedBytesAreSeenThroughAnotherMount() throws Exception {
    java.nio.file.Path seen = other.resolve("faults/flushed");
    try (FSDataOutputStream out = fs.create(new Path("/faults/flushed"), true)) {
      for (int round = 1; round <= 5; round++) {
        out.write(data, 0, 10_000);
        out.hflush();
        TimeUnit.MILLISECONDS.sleep(keptByMounts().toMillis());
        byte[] got = Files.readAllBytes(seen);
        assertEquals(10_000 * round, got.length);
        assertArrayEquals(
            Arrays.copyOf(data, 10_000), Arrays.copyOfRange(got, got.length - 10_000, got.length));
      }
    }
  }

  @Test
  void aServerKilledWhileReadingCostsNoByte() throws Exception {
    write();
    Set<String> all = servers();
    byte[] got = new byte[LENGTH];
    for (String host : all) {
      forgetCached();
      try (FSDataInputStream in = fs.open(FILE)) {
        in.readFully(got, 0, LENGTH / 4);
        kill(host);
        forgetCached();
        in.readFully(got, LENGTH / 4, LENGTH - LENGTH / 4);
        assertEquals(-1, in.read());
      }
      assertArrayEquals(data, got, host + " died half-way");
      forgetCached();
      assertArrayEquals(data, read(), host + " is dead from the start");
      start(host);
      await(host + " to be back", () -> servers().equals(all));
    }
  }

  @Test
  void aServerKilledWhileWritingLosesNoFileThatWasClosed() throws Exception {
    write();
    int copies = servers().size();
    for (int turn = 0; turn < copies; turn++) {
      boolean closed = writeWhileDying(turn);
      if (closed) {
        forgetCached();
        assertArrayEquals(data, read(), "a server is dead");
      }
      startAll();
      if (closed) {
        await("the server to be back", () -> servers().size() == copies);
        checkWhole();
      }
      write();
      await("all servers", () -> servers().size() == copies);
    }
  }

  /** False when the writer was told that the file is not complete. */
  private boolean writeWhileDying(int turn) throws Exception {
    String host = "";
    try (FSDataOutputStream out = fs.create(FILE, true)) {
      out.write(data, 0, LENGTH / 2);
      out.hflush();
      host = List.copyOf(servers()).get(turn);
      kill(host);
      out.write(data, LENGTH / 2, LENGTH / 2);
    } catch (IOException e) {
      assertTrue(e.getMessage().contains(FILE.toString()), host + " died: " + e);
      return false;
    }
    return true;
  }

  @Test
  void hungServersEndInAnErrorInTime() throws Exception {
    write();
    conf.set(PfsKeys.TIMEOUT, "2s");
    String[] hosts = java.nio.file.Path.of("/run/netns").toFile().list();
    try (PfsFileSystem hasty = (PfsFileSystem) TestRoot.open(conf)) {
      // Of a directory that it alone changes, a mount may know what is not there.
      Files.delete(Files.writeString(other.resolve("faults/by another"), "here"));
      try {
        for (String host : hosts) {
          signal("-STOP", host);
        }
        long before = System.nanoTime();
        MountHungException e =
            assertThrows(
                MountHungException.class,
                () -> hasty.getFileStatus(new Path("/faults/none" + System.nanoTime())));
        assertTrue(e.getMessage().contains("fs.pfs.timeout"), e.getMessage());
        assertTrue(System.nanoTime() - before < 10_000_000_000L);
      } finally {
        for (String host : hosts) {
          signal("-CONT", host);
        }
      }
    }
    assertArrayEquals(data, read(), "all is well again");
  }
}
