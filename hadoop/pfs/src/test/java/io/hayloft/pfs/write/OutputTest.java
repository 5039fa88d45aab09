package io.hayloft.pfs.write;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.hayloft.pfs.TestRoot;
import io.hayloft.pfs.io.BufferPool;
import io.hayloft.pfs.io.TimeLimit;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Streams on disks that are full, and copies of which one fails. */
class OutputTest {
  private final TimeLimit limit = new TimeLimit("/mnt", 4, 5_000);
  private final BufferPool pool = new BufferPool(64 << 10, 2);
  private final List<Sink> closed = new ArrayList<>();
  private final byte[] data = new byte[1_000_000];
  private final Path good = TestRoot.of("output").resolve("good");

  @BeforeEach
  void fill() {
    new Random(2).nextBytes(data);
  }

  @AfterEach
  void close() {
    limit.close();
  }

  /** The system's own full disk. */
  private static Sink full() throws IOException {
    Path file = Path.of("/dev/full");
    return new Sink(FileChannel.open(file, StandardOpenOption.WRITE), file);
  }

  private Sink good() throws IOException {
    return new Sink(
        FileChannel.open(
            good,
            StandardOpenOption.CREATE,
            StandardOpenOption.WRITE,
            StandardOpenOption.TRUNCATE_EXISTING),
        good);
  }

  /** Takes every byte; asked to force them to a disk, the system refuses. */
  private static Sink unforced() throws IOException {
    Path file = Path.of("/dev/null");
    return new Sink(FileChannel.open(file, StandardOpenOption.WRITE), file);
  }

  private PfsOutputStream stream(Sink... sinks) {
    return stream(false, sinks);
  }

  private PfsOutputStream stream(boolean hflushForces, Sink... sinks) {
    return new PfsOutputStream("/f", List.of(sinks), limit, pool, hflushForces, closed::addAll);
  }

  @Test
  void writesAreGathered() throws IOException {
    try (PfsOutputStream out = stream(good())) {
      for (int at = 0; at < pool.size() - 1; at++) {
        out.write(data[at]);
      }
      assertEquals(0, Files.size(good));
      out.flush();
      assertEquals(pool.size() - 1, Files.size(good));
    }
  }

  @Test
  void hsyncForcesEveryCopyAndHflushDoesWhenTold() throws IOException {
    PfsOutputStream lazy = stream(unforced());
    lazy.write(1);
    lazy.hflush();
    assertThrows(IOException.class, lazy::hsync);
    assertThrows(IOException.class, lazy::close);
    PfsOutputStream forcing = stream(true, unforced());
    assertThrows(IOException.class, forcing::hflush);
    assertThrows(IOException.class, forcing::close);
    PfsOutputStream both = stream(good(), unforced());
    both.hsync();
    both.close();
    assertEquals(1, closed.size(), "the copy that was not forced is left behind");
  }

  @Test
  void aFullDiskIsToldWithWhatHelps() throws IOException {
    PfsOutputStream out = stream(full());
    IOException e = assertThrows(IOException.class, () -> out.write(data));
    assertTrue(e.getMessage().contains("free space on the file system"), e.getMessage());
    assertThrows(IOException.class, () -> out.write(1), "and the stream stays broken");
    assertThrows(IOException.class, out::close);
    out.close();
    assertEquals(List.of(), closed, "nothing is sealed");
    assertEquals(2, pool.available());
  }

  @Test
  void anErrorIsNotAttachedToItself() {
    IOException e =
        assertThrows(
            IOException.class,
            () -> {
              try (PfsOutputStream out = stream(full())) {
                out.write(data);
              }
            });
    assertEquals(1, e.getSuppressed().length);
  }

  @Test
  void aFullDiskAtTheCloseIsToldToo() throws IOException {
    PfsOutputStream out = stream(full());
    out.write(data, 0, 100);
    assertThrows(IOException.class, out::close);
    assertEquals(2, pool.available());
  }

  @Test
  void aCopyThatFailsIsLeftBehind() throws IOException {
    PfsOutputStream out = stream(good(), full());
    out.write(data);
    out.close();
    assertArrayEquals(data, Files.readAllBytes(good));
    assertEquals(1, closed.size(), "only the file itself is complete");
    assertEquals(2, pool.available());
  }

  @Test
  void manyStreamsShareFewBuffers() throws IOException {
    List<PfsOutputStream> streams = new ArrayList<>();
    for (int at = 0; at < 5; at++) {
      Path file = good.resolveSibling("many" + at);
      streams.add(
          stream(
              new Sink(
                  FileChannel.open(
                      file, StandardOpenOption.CREATE, StandardOpenOption.WRITE), file)));
    }
    for (int part = 0; part < 10; part++) {
      for (PfsOutputStream out : streams) {
        out.write(data, part * 100_000, 100_000);
      }
    }
    for (PfsOutputStream out : streams) {
      out.close();
    }
    for (int at = 0; at < 5; at++) {
      assertArrayEquals(data, Files.readAllBytes(good.resolveSibling("many" + at)));
    }
    assertEquals(2, pool.available());
  }
}
