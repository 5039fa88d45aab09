package io.hayloft.pfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.Arrays;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Test;

/**
 * Layouts and faults on a real GlusterFS of three servers, and files that go under an open stream,
 * whose handle the servers then forget. scripts/pfs-mounted starts it and runs this. MooseFS keeps
 * such files until they are closed.
 */
class GlusterFaults extends ServerFaults {
  /** By their names' hashes: so many leave none of three pairs of servers out. */
  private static final int SPREAD_FILES = 24;

  @Override
  String[] server(String host) {
    return new String[] {"glusterd", "--log-level", "WARNING"};
  }

  @Override
  Set<String> servers() throws IOException {
    return serversOf(root.resolve("faults/file"));
  }

  /** The servers that have a file of these bytes below one of their bricks. */
  private Set<String> bricksWith(String below, byte[] bytes) throws IOException {
    Set<String> hosts = new TreeSet<>();
    for (int n = 1; n <= SERVERS; n++) {
      for (String brick : new String[] {"a", "b"}) {
        java.nio.file.Path file = work.resolve("cs" + n).resolve(brick).resolve(below);
        if (Files.isRegularFile(file) && Arrays.equals(bytes, Files.readAllBytes(file))) {
          hosts.add("cs" + n);
        }
      }
    }
    return hosts;
  }

  /** Its mounts keep the length of a file for a second, and so does the kernel. */
  @Override
  Duration keptByMounts() {
    return Duration.ofMillis(2_500);
  }

  @Override
  void checkWhole() throws Exception {
    String here = root.getFileName() + "/faults/file";
    await("both servers to have all bytes", () -> bricksWith(here, data).size() == 2);
    await(
        "nothing left to heal",
        () -> {
          String said = TestRoot.run(work + "/cs1/in", "gluster", "volume", "heal", "pfs", "info");
          return said.split("Number of entries: 0", -1).length - 1 == 2 * SERVERS;
        });
  }

  @Test
  void theSchedulerLearnsWhichServersHaveAFile() throws IOException {
    Set<String> all = new TreeSet<>();
    for (int n = 0; n < SPREAD_FILES; n++) {
      byte[] bytes = ("file " + n).getBytes();
      String name = "spread/" + n;
      try (FSDataOutputStream out = fs.create(new Path("/" + name), true)) {
        out.write(bytes);
      }
      Set<String> told = serversOf(root.resolve(name));
      assertEquals(2, told.size(), told.toString());
      assertEquals(bricksWith(root.getFileName() + "/" + name, bytes), told);
      all.addAll(told);
    }
    assertEquals(Set.of("cs1", "cs2", "cs3"), all);
  }

  private static void expectTold(FSDataInputStream in) throws IOException {
    forgetCached();
    byte[] into = new byte[LENGTH / 2];
    IOException e = assertThrows(IOException.class, () -> in.readFully(LENGTH / 2, into));
    assertTrue(e.getMessage().contains("deleted or replaced while it was open"), e.getMessage());
    in.close();
  }

  @Test
  void aFileReplacedUnderAReaderIsToldAndTheNewOneRead() throws IOException {
    write();
    byte[] others = new byte[LENGTH];
    new Random(8).nextBytes(others);
    FSDataInputStream in = fs.open(FILE);
    in.readFully(0, new byte[100]);
    java.nio.file.Path temporary = other.resolve("faults/new");
    Files.write(temporary, others);
    Files.move(temporary, other.resolve("faults/file"), StandardCopyOption.ATOMIC_MOVE);
    expectTold(in);
    try (FSDataInputStream again = fs.open(FILE)) {
      assertArrayEquals(others, again.readAllBytes());
    }
  }

  @Test
  void aFileDeletedUnderAReaderIsTold() throws IOException {
    write();
    FSDataInputStream in = fs.open(FILE);
    in.readFully(0, new byte[100]);
    Files.delete(other.resolve("faults/file"));
    expectTold(in);
  }
}
