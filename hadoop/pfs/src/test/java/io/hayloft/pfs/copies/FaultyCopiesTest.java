package io.hayloft.pfs.copies;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.hayloft.pfs.PfsKeys;
import io.hayloft.pfs.ReadKinds;
import io.hayloft.pfs.TestRoot;
import io.hayloft.pfs.io.BufferPool;
import io.hayloft.pfs.io.MountHungException;
import io.hayloft.pfs.io.TimeLimit;
import io.hayloft.pfs.read.Copy;
import io.hayloft.pfs.read.FileSource;
import io.hayloft.pfs.read.PfsInputStream;
import io.hayloft.pfs.read.ReadPolicy;
import io.hayloft.pfs.read.Reads;
import io.hayloft.pfs.read.Source;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Reads of every kind on real copies, of which some hang or fail. */
class FaultyCopiesTest {
  private static final int LENGTH = 300_007;
  private static final int HALF = LENGTH / 2;
  private static final int LARGE = 64 << 10;
  private static final int THREADS = 8;
  private static final int BUFFERS = 40;
  private static final Path FILE = new Path("/file");

  private enum Fault {
    /** From the half on, as failing does. */
    READ_HANGS,
    READ_FAILS,
    OPEN_HANGS
  }

  private final java.nio.file.Path root = TestRoot.of("faulty-copies");
  private final Configuration conf = TestRoot.configure(new Configuration(), root);
  private final java.nio.file.Path local = root.resolve("file");
  private final byte[] data = new byte[LENGTH];
  private final Map<java.nio.file.Path, Fault> faults = new ConcurrentHashMap<>();
  private final AtomicInteger hanging = new AtomicInteger();
  private final AtomicInteger open = new AtomicInteger();
  private final BufferPool large = new BufferPool(LARGE, BUFFERS);
  private final BufferPool small = new BufferPool(8 << 10, BUFFERS);
  private volatile CountDownLatch answers = new CountDownLatch(1);
  private final TimeLimit limit = new TimeLimit("/mnt", THREADS, 300);
  private Copies copies;
  private FileSystem fs;

  @BeforeEach
  void write() throws IOException {
    new Random(13).nextBytes(data);
    try (FileSystem plain = TestRoot.open(root)) {
      plain.delete(FILE, false);
      plain.delete(new Path("/.copies"), true);
    }
    for (int n = 1; n <= 3; n++) {
      Files.createDirectories(root.resolve(".copies/s" + n));
    }
    conf.set(PfsKeys.TARGETS, "s1=/.copies/s1,s2=/.copies/s2,s3=/.copies/s3");
    conf.setInt(PfsKeys.COPIES, 3);
    conf.set(PfsKeys.HOST, "s2");
    fs = TestRoot.open(conf);
    copies = new Copies(root, Target.parse(conf.get(PfsKeys.TARGETS), root), "s2", 3, "hybrid");
    create(data);
  }

  @AfterEach
  void close() throws IOException {
    answers.countDown();
    limit.close();
    fs.close();
  }

  private void create(byte[] bytes) throws IOException {
    try (FSDataOutputStream out = fs.create(FILE, true)) {
      out.write(bytes);
    }
  }

  /** The copies in the order in which a reader on s2 takes them. */
  private List<java.nio.file.Path> order() throws IOException {
    CopyRecord seal = copies.validSeal(local);
    List<java.nio.file.Path> all = new ArrayList<>(List.of(local));
    copies.targetsOf(seal).forEach(target -> all.add(copies.copy(target, seal)));
    assertEquals(3, all.size());
    return all;
  }

  private void hang() throws IOException {
    hanging.incrementAndGet();
    try {
      assertTrue(answers.await(20, TimeUnit.SECONDS));
    } catch (InterruptedException e) {
      throw new IOException(e);
    } finally {
      hanging.decrementAndGet();
    }
  }

  /** A file whose calls hang or fail as its fault says. */
  private final class Faulty implements Source, Copy {
    private final java.nio.file.Path path;
    private final FileSource real;

    Faulty(java.nio.file.Path path) throws IOException {
      if (faults.get(path) == Fault.OPEN_HANGS) {
        hang();
      }
      this.path = path;
      this.real = FileSource.open(path);
      open.incrementAndGet();
    }

    @Override
    public void open() {}

    @Override
    public int read(ByteBuffer into, long position) throws IOException {
      Fault fault = position + into.remaining() > HALF ? faults.get(path) : null;
      if (fault == Fault.READ_HANGS) {
        hang();
      }
      if (fault == Fault.READ_FAILS) {
        throw new IOException("Input/output error");
      }
      return real.read(into, position);
    }

    @Override
    public long length() {
      return real.length();
    }

    @Override
    public Copy current() {
      return this;
    }

    @Override
    public boolean moveOn(Copy failed, IOException why) {
      return false;
    }

    @Override
    public void close() throws IOException {
      open.decrementAndGet();
      real.close();
    }
  }

  private PfsInputStream open(ReadPolicy policy) throws IOException {
    Source source =
        CopiesSource.open(
            copies, local, Faulty::new, failed -> limit.closeSoon("close", failed));
    Reads reads = new Reads(limit, large, small);
    reads.open(source, "/file");
    return new PfsInputStream(source, "/file", reads, policy, 0, null);
  }

  /** Reads in every way with these faults of the copies, in their order; null is a healthy one. */
  private void readAllWays(Fault... wanted) throws Exception {
    List<java.nio.file.Path> order = order();
    faults.clear();
    for (int n = 0; n < wanted.length; n++) {
      if (wanted[n] != null) {
        faults.put(order.get(n), wanted[n]);
      }
    }
    for (ReadPolicy policy : ReadPolicy.values()) {
      for (Map.Entry<String, ReadKinds.Kind> kind : ReadKinds.all().entrySet()) {
        String what = String.join(" ", List.of(wanted).toString(), policy.name(), kind.getKey());
        try (FSDataInputStream in = new FSDataInputStream(open(policy))) {
          assertArrayEquals(data, kind.getValue().read(in, LENGTH), what);
          int hung = hanging.get();
          assertTrue(hung <= THREADS * 3 / 4, what + ": " + hung + " threads hang");
          assertArrayEquals(data, kind.getValue().read(in, LENGTH), what + " again");
          assertEquals(hung, hanging.get(), what + ": a bad copy is asked again");
        }
        recover(what);
      }
    }
  }

  /** Lets the hung calls end: every thread, buffer and file comes back. */
  private void recover(String what) throws Exception {
    answers.countDown();
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
    while (large.available() < BUFFERS || small.available() < BUFFERS || open.get() > 0) {
      assertTrue(
          System.nanoTime() < end,
          what + ": " + large.available() + " large and " + small.available()
              + " small buffers, " + open.get() + " files open");
      Thread.sleep(5);
    }
    answers = new CountDownLatch(1);
  }

  @Test
  void aHungCopyCostsNoByte() throws Exception {
    readAllWays(Fault.READ_HANGS);
  }

  @Test
  void twoHungCopiesCostNoByte() throws Exception {
    readAllWays(Fault.READ_HANGS, Fault.READ_HANGS);
  }

  @Test
  void aCopyThatHangsWhenItIsOpenedCostsNoByte() throws Exception {
    readAllWays(Fault.OPEN_HANGS);
    readAllWays(Fault.READ_HANGS, Fault.OPEN_HANGS);
  }

  @Test
  void aCopyThatFailsAndOneThatHangsCostNoByte() throws Exception {
    readAllWays(Fault.READ_FAILS, Fault.READ_HANGS);
  }

  @Test
  void withEveryCopyHungEachRangeFailsInTime() throws Exception {
    for (java.nio.file.Path copy : order()) {
      faults.put(copy, Fault.READ_HANGS);
    }
    List<ByteBuffer> back = Collections.synchronizedList(new ArrayList<>());
    List<FileRange> ranges = ReadKinds.ranges(LENGTH);
    assertTrue(ranges.size() > 2 * THREADS);
    long before = System.nanoTime();
    try (PfsInputStream in = open(ReadPolicy.RANDOM)) {
      in.readVectored(ranges, ByteBuffer::allocate, back::add);
      for (FileRange range : ranges) {
        ExecutionException e =
            assertThrows(
                ExecutionException.class, () -> range.getData().get(10, TimeUnit.SECONDS));
        assertTrue(e.getCause().getMessage().contains("no copy is left"), e.toString());
        assertTrue(e.getCause().getCause() instanceof MountHungException, e.toString());
      }
    }
    assertTrue(System.nanoTime() - before < TimeUnit.SECONDS.toNanos(5));
    assertEquals(ranges.size(), back.size(), "every buffer was given back");
    assertEquals(THREADS * 3 / 4, hanging.get(), "the other threads are left to other streams");
    recover("all hung");
  }

  @Test
  void aLateAnswerReachesNoBufferOfTheCaller() throws Exception {
    for (java.nio.file.Path copy : order()) {
      faults.put(copy, Fault.READ_HANGS);
    }
    ByteBuffer mine = ByteBuffer.allocate(1000);
    try (PfsInputStream in = open(ReadPolicy.RANDOM)) {
      FileRange range = FileRange.createFileRange(HALF, 1000);
      in.readVectored(List.of(range), size -> mine);
      assertThrows(ExecutionException.class, () -> range.getData().get(10, TimeUnit.SECONDS));
    }
    recover("late");
    assertArrayEquals(new byte[1000], mine.array());
  }

  @Test
  void whatAFailedCopyHasIsReadWhenTheOthersAreGone() throws Exception {
    List<java.nio.file.Path> order = order();
    faults.put(local, Fault.READ_FAILS);
    try (PfsInputStream in = open(ReadPolicy.RANDOM)) {
      Files.delete(order.get(1));
      Files.delete(order.get(2));
      byte[] got = new byte[1000];
      for (int round = 0; round < 2; round++) {
        IOException e =
            assertThrows(IOException.class, () -> in.readFully(HALF, new byte[10]));
        assertTrue(e.getMessage().contains("pfs fsck"), e.getMessage());
        in.readFully(0, got);
        assertArrayEquals(java.util.Arrays.copyOf(data, 1000), got);
      }
    }
    recover("all gone");
  }

  @Test
  void anotherFileOfTheNameIsNotTakenForACopy() throws Exception {
    List<java.nio.file.Path> order = order();
    copies = new Copies(root, copies.targets(), order.get(1).getParent().getFileName().toString(),
        3, "hybrid");
    faults.put(order.get(1), Fault.READ_FAILS);
    try (PfsInputStream in = open(ReadPolicy.RANDOM)) {
      in.readFully(0, new byte[1000]);
      byte[] others = new byte[LENGTH];
      new Random(14).nextBytes(others);
      create(others);
      IOException e = assertThrows(IOException.class, () -> in.readFully(HALF, new byte[10]));
      assertTrue(e.getMessage().contains("no copy is left"), e.getMessage());
    }
    recover("replaced");
  }

  @Test
  void bytesAppendedToTheCopiesAreNotTheSealedFiles() throws Exception {
    try (PfsInputStream in = open(ReadPolicy.RANDOM)) {
      for (java.nio.file.Path copy : order()) {
        Files.write(copy, new byte[500], StandardOpenOption.APPEND);
      }
      ByteBuffer got = ByteBuffer.allocate(LENGTH + 500);
      while (in.read(got) > 0) {
        // Until the end.
      }
      assertEquals(LENGTH, got.position());
    }
  }

  @Test
  void aReadThatWaitsForAThreadBlamesNoCopy() throws Exception {
    List<java.nio.file.Path> order = order();
    try (FSDataInputStream in = new FSDataInputStream(open(ReadPolicy.RANDOM))) {
      for (int n = 0; n < THREADS; n++) {
        limit.start(
            "hang",
            () -> {
              hang();
              return null;
            });
      }
      FileRange range = FileRange.createFileRange(0, 10);
      for (int round = 0; round < 3; round++) {
        assertThrows(MountHungException.class, () -> in.readFully(0, new byte[10]));
        in.readVectored(List.of(range), ByteBuffer::allocate);
        ExecutionException e =
            assertThrows(
                ExecutionException.class, () -> range.getData().get(10, TimeUnit.SECONDS));
        assertTrue(e.getCause() instanceof MountHungException, e.toString());
      }
      answers.countDown();
      Files.delete(order.get(1));
      Files.delete(order.get(2));
      for (ReadKinds.Kind kind : ReadKinds.all().values()) {
        assertArrayEquals(data, kind.read(in, LENGTH));
      }
    }
  }
}
