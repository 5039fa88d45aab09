package io.hayloft.pfs.read;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.hayloft.pfs.io.BufferPool;
import io.hayloft.pfs.io.MountHungException;
import io.hayloft.pfs.io.TimeLimit;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.FileRange;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** What a stream asks of the mount, and what it makes of a mount that fails or hangs. */
class StreamTest {
  private static final int LARGE = 1 << 20;
  private static final int LENGTH = 5 * LARGE + 777;

  private final byte[] data = new byte[LENGTH];
  private final List<String> asked = Collections.synchronizedList(new ArrayList<>());
  private final CountDownLatch released = new CountDownLatch(1);
  private volatile long hangsFrom = Long.MAX_VALUE;
  private volatile boolean hasAnotherCopy;
  private volatile long failsFrom = Long.MAX_VALUE;
  private final TimeLimit limit = new TimeLimit("/mnt", 4, 400);
  private final BufferPool large = new BufferPool(LARGE, 4);
  private final BufferPool small = new BufferPool(16 << 10, 4);

  /** A file in memory that fails or hangs from an offset on, as a mount with a dead server. */
  private final class Memory implements Source, Copy {
    @Override
    public void open() {}

    @Override
    public int read(ByteBuffer into, long position) throws IOException {
      asked.add(position + "+" + into.remaining());
      if (position + into.remaining() > hangsFrom) {
        hang();
      }
      if (position + into.remaining() > failsFrom) {
        throw new IOException("Input/output error");
      }
      if (position >= LENGTH) {
        return -1;
      }
      int length = (int) Math.min(into.remaining(), LENGTH - position);
      into.put(data, (int) position, length);
      return length;
    }

    @Override
    public long length() {
      return LENGTH;
    }

    @Override
    public Copy current() {
      return this;
    }

    @Override
    public boolean moveOn(Copy hung, IOException why) {
      boolean another = hasAnotherCopy;
      if (another) {
        hangsFrom = Long.MAX_VALUE;
      }
      return another;
    }

    @Override
    public void close() {}
  }

  private final Source source = new Memory();

  StreamTest() {
    new Random(7).nextBytes(data);
  }

  private void hang() {
    try {
      released.await(20, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  @AfterEach
  void release() {
    released.countDown();
    limit.close();
  }

  private PfsInputStream open(ReadPolicy policy) {
    return new PfsInputStream(
        source, "/f", new Reads(limit, large, small), policy, 1024, null);
  }

  @Test
  void smallReadsInSequenceBecomeLargeOnes() throws IOException {
    try (PfsInputStream in = open(ReadPolicy.ADAPTIVE)) {
      byte[] whole = new byte[LENGTH];
      int at = 0;
      while (at < LENGTH) {
        at += in.read(whole, at, Math.min(4096, LENGTH - at));
      }
      assertEquals(-1, in.read());
      assertArrayEquals(data, whole);
    }
    assertTrue(asked.size() < 12, asked.toString());
    assertEquals(4, large.available(), "all buffers are back");
  }

  @Test
  void singleBytesAreNotSingleCalls() throws IOException {
    try (PfsInputStream in = open(ReadPolicy.RANDOM)) {
      for (int at = 0; at < 10_000; at++) {
        assertEquals(data[at] & 0xff, in.read());
      }
    }
    assertEquals(3, asked.size(), asked.toString());
  }

  @Test
  void randomReadsFetchWhatIsAskedFor() throws IOException {
    try (PfsInputStream in = open(ReadPolicy.ADAPTIVE)) {
      byte[] part = new byte[5000];
      Random random = new Random(3);
      for (int round = 0; round < 50; round++) {
        int at = random.nextInt(LENGTH - part.length);
        in.seek(at);
        in.readFully(at, part);
        assertEquals(ByteBuffer.wrap(data, at, part.length), ByteBuffer.wrap(part));
        assertEquals(part.length, in.read(part, 0, part.length));
      }
    }
    asked.forEach(call -> assertTrue(call.endsWith("+5000"), call));
  }

  @Test
  void byteBuffersAreFilledInSequenceAndByPosition() throws IOException {
    ByteBuffer into = ByteBuffer.allocateDirect(LENGTH);
    try (PfsInputStream in = open(ReadPolicy.ADAPTIVE)) {
      while (into.hasRemaining()) {
        into.limit(Math.min(LENGTH, into.position() + 5000));
        assertTrue(in.read(into) > 0);
        into.limit(LENGTH);
      }
      assertEquals(-1, in.read(ByteBuffer.allocate(1)));
      assertEquals(ByteBuffer.wrap(data), into.flip());
      asked.clear();
      ByteBuffer part = ByteBuffer.allocateDirect(5000);
      in.readFully(70, part);
      assertEquals(ByteBuffer.wrap(data, 70, 5000), part.flip());
      assertEquals(List.of("70+5000"), asked, "nothing is read ahead of a position");
      assertEquals(LENGTH, in.getPos());
      assertThrows(EOFException.class, () -> in.readFully(LENGTH - 10, ByteBuffer.allocate(11)));
    }
  }

  @Test
  void policiesDecide() throws Exception {
    try (PfsInputStream in = open(ReadPolicy.SEQUENTIAL)) {
      in.read(new byte[5000]);
      assertEquals("0+" + LARGE, asked.get(0));
      // The second fill is on its way: it must not be taken for one of the next stream.
      for (int round = 0; round < 500 && asked.size() < 2; round++) {
        Thread.sleep(10);
      }
      assertEquals(2, asked.size(), asked.toString());
    }
    asked.clear();
    try (PfsInputStream in = open(ReadPolicy.RANDOM)) {
      for (int round = 0; round < 10; round++) {
        in.read(new byte[5000]);
      }
    }
    asked.forEach(call -> assertTrue(call.endsWith("+5000"), call));
    assertEquals(ReadPolicy.RANDOM, ReadPolicy.of("unheard-of, vector"));
    assertEquals(ReadPolicy.ADAPTIVE, ReadPolicy.of(""));
  }

  @Test
  void streamsWithoutABufferStillRead() throws IOException {
    List<ByteBuffer> taken = new ArrayList<>();
    for (int at = 0; at < 4; at++) {
      taken.add(large.takeIfLeft());
    }
    try (PfsInputStream in = open(ReadPolicy.SEQUENTIAL)) {
      assertArrayEquals(data, in.readAllBytes());
    }
    taken.forEach(large::giveBack);
  }

  @Test
  void aHungReadEndsInTimeAndItsBufferIsNotUsedAgain() throws Exception {
    hangsFrom = LARGE;
    try (PfsInputStream in = open(ReadPolicy.ADAPTIVE)) {
      byte[] part = new byte[4096];
      MountHungException e =
          assertThrows(
              MountHungException.class,
              () -> {
                while (in.read(part) > 0) {
                  // Until the mount hangs.
                }
              });
      assertTrue(e.getMessage().contains("fs.pfs.timeout"), e.getMessage());
      byte[] mine = new byte[8192];
      assertThrows(MountHungException.class, () -> in.read(2L * LARGE, mine, 0, 8192));
      released.countDown();
      Thread.sleep(100);
      assertArrayEquals(new byte[8192], mine, "a late answer does not reach the caller");
      hangsFrom = Long.MAX_VALUE;
      assertEquals(8192, in.read(2L * LARGE, mine, 0, 8192), "and then the stream works again");
    }
    assertEquals(4, large.available());
    assertEquals(4, small.available());
  }

  @Test
  void aHungReadGoesOnWithAnotherCopy() throws IOException {
    hasAnotherCopy = true;
    for (ReadPolicy policy : ReadPolicy.values()) {
      hangsFrom = 2 * LARGE;
      try (PfsInputStream in = open(policy)) {
        assertArrayEquals(data, in.readAllBytes(), policy.toString());
      }
    }
  }

  @Test
  void bytesBeforeAnErrorAreGiven() throws IOException {
    failsFrom = 3 * LARGE;
    try (PfsInputStream in = open(ReadPolicy.ADAPTIVE)) {
      byte[] part = new byte[4096];
      long at = 0;
      IOException error = null;
      while (error == null) {
        try {
          at += in.read(part);
        } catch (IOException e) {
          error = e;
        }
      }
      assertTrue(error.getMessage().contains("Input/output"), error.getMessage());
      assertEquals(at, in.getPos());
      assertTrue(at > 2 * LARGE, "read up to " + at);
      in.seek(0);
      assertEquals(4096, in.read(part));
    }
  }

  @Test
  void aReadThatFailsHalfWayGivesWhatItHas() throws IOException {
    failsFrom = 3 * LARGE;
    ByteBuffer into = ByteBuffer.allocate(LENGTH);
    try (PfsInputStream in = open(ReadPolicy.RANDOM)) {
      while (in.getPos() < failsFrom) {
        assertTrue(in.read(into) > 0);
        assertEquals(in.getPos(), into.position(), "what is in the buffer was counted");
      }
      assertThrows(IOException.class, () -> in.read(into));
      assertEquals(failsFrom, in.getPos());
      assertEquals(failsFrom, into.position());
      failsFrom = Long.MAX_VALUE;
      while (in.read(into) > 0) {
        // Until the end.
      }
    }
    assertEquals(ByteBuffer.wrap(data), into.flip());
  }

  @Test
  void vectoredReadsJoinCloseRanges() throws Exception {
    List<FileRange> ranges =
        List.of(
            FileRange.createFileRange(100, 50),
            FileRange.createFileRange(400, 100),
            FileRange.createFileRange(LARGE, 3 * LARGE),
            FileRange.createFileRange(900, 0));
    try (PfsInputStream in = open(ReadPolicy.RANDOM)) {
      in.readVectored(ranges, ByteBuffer::allocate);
      for (FileRange range : ranges) {
        ByteBuffer got = range.getData().get(5, TimeUnit.SECONDS);
        assertEquals(
            ByteBuffer.wrap(data, (int) range.getOffset(), range.getLength()), got);
      }
    }
    assertTrue(asked.contains("100+800"), asked.toString());
    assertEquals(4, large.available());
  }

  @Test
  void vectoredReadsFailByRangeAndGiveBuffersBack() throws Exception {
    List<FileRange> ranges =
        List.of(
            FileRange.createFileRange(0, 100), FileRange.createFileRange(LENGTH - 10, 100));
    List<ByteBuffer> back = new ArrayList<>();
    try (PfsInputStream in = open(ReadPolicy.RANDOM)) {
      in.readVectored(ranges, ByteBuffer::allocate, back::add);
      ranges.get(0).getData().get(5, TimeUnit.SECONDS);
      ExecutionException e =
          assertThrows(
              ExecutionException.class, () -> ranges.get(1).getData().get(5, TimeUnit.SECONDS));
      assertTrue(e.getCause() instanceof EOFException, e.toString());
      assertEquals(1, back.size());
      hangsFrom = 0;
      List<FileRange> hung = List.of(FileRange.createFileRange(0, 100));
      in.readVectored(hung, ByteBuffer::allocate, back::add);
      e =
          assertThrows(
              ExecutionException.class, () -> hung.get(0).getData().get(5, TimeUnit.SECONDS));
      assertTrue(e.getCause() instanceof MountHungException, e.toString());
    }
  }

  @Test
  void aRangeBeyondEveryFileIsRefused() throws IOException {
    List<FileRange> ranges = List.of(FileRange.createFileRange(Long.MAX_VALUE - 10, 100));
    try (PfsInputStream in = open(ReadPolicy.RANDOM)) {
      assertThrows(EOFException.class, () -> in.readVectored(ranges, ByteBuffer::allocate));
    }
  }

  @Test
  void unbufferGivesTheBuffersBack() throws IOException {
    try (PfsInputStream in = open(ReadPolicy.SEQUENTIAL)) {
      in.read(new byte[10]);
      assertTrue(large.available() < 4);
      in.unbuffer();
      in.unbuffer();
      assertEquals(10, in.getPos());
      assertEquals(data[10] & 0xff, in.read());
    }
  }
}
