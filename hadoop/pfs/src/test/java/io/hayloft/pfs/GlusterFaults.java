package io.hayloft.pfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.Random;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Files that go under an open stream on a real GlusterFS, whose servers then forget the handle;
 * scripts/pfs-mounted starts it and runs this. MooseFS keeps such files until they are closed.
 */
class GlusterFaults {
  private static final int LENGTH = 1 << 20;
  private static final Path FILE = new Path("/stale");

  private final java.nio.file.Path root =
      java.nio.file.Path.of(System.getenv("PFS_MOUNT")).resolve("gluster-faults");
  private final java.nio.file.Path other =
      java.nio.file.Path.of(System.getenv("PFS_OTHER")).resolve("gluster-faults/stale");
  private final byte[] data = new byte[LENGTH];
  private FileSystem fs;

  @BeforeEach
  void open() throws IOException {
    new Random(7).nextBytes(data);
    Files.createDirectories(root);
    fs = TestRoot.open(root);
    write(data);
  }

  @AfterEach
  void close() throws IOException {
    fs.delete(FILE, false);
    fs.close();
  }

  private void write(byte[] bytes) throws IOException {
    try (FSDataOutputStream out = fs.create(FILE, true)) {
      out.write(bytes);
    }
  }

  /** What the kernel has of a file is read whatever the servers say. */
  private static void forgetCached() throws IOException {
    Files.writeString(java.nio.file.Path.of("/proc/sys/vm/drop_caches"), "3");
  }

  private void expectTold(FSDataInputStream in) throws IOException {
    forgetCached();
    byte[] into = new byte[LENGTH / 2];
    IOException e = assertThrows(IOException.class, () -> in.readFully(LENGTH / 2, into));
    assertTrue(e.getMessage().contains("deleted or replaced while it was open"), e.getMessage());
    in.close();
  }

  @Test
  void aFileReplacedUnderAReaderIsToldAndTheNewOneRead() throws IOException {
    byte[] others = new byte[LENGTH];
    new Random(8).nextBytes(others);
    FSDataInputStream in = fs.open(FILE);
    in.readFully(0, new byte[100]);
    java.nio.file.Path temporary = other.resolveSibling("new");
    Files.write(temporary, others);
    Files.move(temporary, other, StandardCopyOption.ATOMIC_MOVE);
    expectTold(in);
    try (FSDataInputStream again = fs.open(FILE)) {
      assertArrayEquals(others, again.readAllBytes());
    }
  }

  @Test
  void aFileDeletedUnderAReaderIsTold() throws IOException {
    FSDataInputStream in = fs.open(FILE);
    in.readFully(0, new byte[100]);
    Files.delete(other);
    expectTold(in);
  }
}
