package io.hayloft.pfs.read;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.hayloft.pfs.io.BufferPool;
import io.hayloft.pfs.io.TimeLimit;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.hadoop.fs.FileRange;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Streams that are closed while a read hangs, and readers that are interrupted. */
@Timeout(30)
class CloseTest {
  private static final int LENGTH = 1 << 20;
  private static final int BUFFER = 64 << 10;

  @TempDir Path dir;
  private final byte[] data = new byte[LENGTH];
  private final CountDownLatch hangs = new CountDownLatch(1);
  private final CountDownLatch answers = new CountDownLatch(1);
  private final CountDownLatch closed = new CountDownLatch(1);
  private final BufferPool large = new BufferPool(BUFFER, 4);
  private final BufferPool small = new BufferPool(BUFFER / 4, 4);
  private Path file;
  private TimeLimit limit;

  @BeforeEach
  void write() throws IOException {
    new Random(3).nextBytes(data);
    file = Files.write(dir.resolve("file"), data);
  }

  @AfterEach
  void release() {
    answers.countDown();
    limit.close();
  }

  /** A handle that hangs from {@code hangsFrom} on, and whose close waits for that, as Java's. */
  private final class Hanging implements FileSource.Handle {
    private final long hangsFrom;
    private int reading;

    Hanging(long hangsFrom) {
      this.hangsFrom = hangsFrom;
    }

    @Override
    public int read(ByteBuffer into, long position) throws IOException {
      if (position + into.remaining() > hangsFrom) {
        synchronized (this) {
          reading++;
        }
        hangs.countDown();
        await(answers);
        synchronized (this) {
          reading--;
          notifyAll();
        }
      }
      int length = (int) Math.min(into.remaining(), LENGTH - position);
      into.put(data, (int) position, length);
      return length;
    }

    @Override
    public long size() {
      return LENGTH;
    }

    @Override
    public synchronized void close() throws IOException {
      try {
        while (reading > 0) {
          wait();
        }
      } catch (InterruptedException e) {
        throw new IOException(e);
      }
      closed.countDown();
    }
  }

  private static void await(CountDownLatch latch) throws IOException {
    try {
      assertTrue(latch.await(20, TimeUnit.SECONDS));
    } catch (InterruptedException e) {
      throw new IOException(e);
    }
  }

  private PfsInputStream open(long limitMs, ReadPolicy policy, FileSource.Opener opener)
      throws IOException {
    limit = new TimeLimit("/mnt", 4, limitMs);
    return new PfsInputStream(
        FileSource.open(file, opener), "/f", new Reads(limit, large, small), policy, 0, null);
  }

  private void expectClosedAfterTheAnswer() throws Exception {
    assertEquals(1, closed.getCount(), "the hung read may still use the handle");
    answers.countDown();
    assertTrue(closed.await(5, TimeUnit.SECONDS), "the last read closes");
    for (int round = 0; large.available() + small.available() < 8; round++) {
      assertTrue(round < 500, "a buffer is lost");
      Thread.sleep(10);
    }
  }

  @Test
  void aCloseDoesNotWaitForHungReadAhead() throws Exception {
    PfsInputStream in = open(2_000, ReadPolicy.SEQUENTIAL, at -> new Hanging(BUFFER));
    byte[] got = new byte[BUFFER];
    assertEquals(BUFFER, in.readNBytes(got, 0, BUFFER));
    await(hangs);
    assertArrayEquals(java.util.Arrays.copyOf(data, BUFFER), got);
    // It would throw after the limit, though the reader has all that it wanted.
    in.close();
    expectClosedAfterTheAnswer();
  }

  @Test
  void aCloseDoesNotWaitForAHungVectoredRead() throws Exception {
    PfsInputStream in = open(2_000, ReadPolicy.RANDOM, at -> new Hanging(0));
    FileRange range = FileRange.createFileRange(0, 3 * BUFFER);
    in.readVectored(java.util.List.of(range), ByteBuffer::allocate);
    await(hangs);
    in.close();
    assertFalse(range.getData().isDone());
    expectClosedAfterTheAnswer();
    assertThrows(
        ExecutionException.class, () -> range.getData().get(5, TimeUnit.SECONDS), "in parts");
  }

  @Test
  void aReadOnceTheStreamIsClosedSaysSo() throws Exception {
    PfsInputStream in = open(2_000, ReadPolicy.RANDOM, at -> new Hanging(0));
    AtomicReference<IOException> error = new AtomicReference<>();
    Thread reader =
        new Thread(
            () ->
                error.set(
                    assertThrows(
                        IOException.class, () -> in.readFully(0, new byte[3 * BUFFER]))));
    reader.start();
    await(hangs);
    in.close();
    answers.countDown();
    reader.join();
    assertTrue(error.get().getMessage().contains("Stream is closed"), error.toString());
  }

  /** Without a limit of time readers call the mount themselves, and Java closes their channel. */
  @Test
  void anInterruptedReaderLeavesTheStreamOpen() throws Exception {
    try (PfsInputStream in = open(0, ReadPolicy.RANDOM, FileSource::openChannel)) {
      byte[] got = new byte[10_000];
      for (long at = 0; at < LENGTH - got.length; at += got.length) {
        long from = at;
        Thread.currentThread().interrupt();
        assertThrows(InterruptedIOException.class, () -> in.read(from, got, 0, got.length));
        assertTrue(Thread.interrupted(), "the caller still learns of it");
        in.readFully(at, got);
        assertEquals(ByteBuffer.wrap(data, (int) at, got.length), ByteBuffer.wrap(got));
      }
    }
  }

  @Test
  void aReaderIsNotDisturbedByTheInterruptOfAnother() throws Exception {
    try (PfsInputStream in = open(0, ReadPolicy.RANDOM, FileSource::openChannel)) {
      AtomicInteger interrupted = new AtomicInteger();
      Thread disturber =
          new Thread(
              () -> {
                while (answers.getCount() > 0) {
                  Thread.currentThread().interrupt();
                  assertThrows(InterruptedIOException.class, () -> in.read(0, new byte[9], 0, 9));
                  interrupted.incrementAndGet();
                }
              });
      disturber.start();
      byte[] got = new byte[LENGTH];
      for (int round = 0; round < 200; round++) {
        in.readFully(0, got);
        assertArrayEquals(data, got);
      }
      assertTrue(disturber.isAlive() && interrupted.get() > 0, "it came to its end before");
      answers.countDown();
      disturber.join();
    }
  }

  @Test
  void anInterruptedWaitLeavesTheStreamAsItWas() throws Exception {
    try (PfsInputStream in = open(2_000, ReadPolicy.ADAPTIVE, FileSource::openChannel)) {
      byte[] got = new byte[LENGTH];
      int at = 0;
      while (at < LENGTH) {
        Thread.currentThread().interrupt();
        try {
          at += in.read(got, at, Math.min(20_000, LENGTH - at));
        } catch (InterruptedIOException e) {
          assertEquals(at, in.getPos());
        }
        Thread.interrupted();
        at += in.read(got, at, Math.min(20_000, LENGTH - at));
      }
      assertArrayEquals(data, got);
    }
    for (int round = 0; large.available() + small.available() < 8; round++) {
      assertTrue(round < 500, "a buffer is lost");
      Thread.sleep(10);
    }
  }

  @Test
  void noFileReachesToTheLargestOffset() throws Exception {
    try (PfsInputStream in = open(2_000, ReadPolicy.ADAPTIVE, FileSource::openChannel)) {
      in.seek(Long.MAX_VALUE);
      assertEquals(-1, in.read());
      assertEquals(-1, in.read(new byte[10]));
      assertEquals(-1, in.read(Long.MAX_VALUE - 5, new byte[10], 0, 10));
      assertEquals(0, in.available());
      assertEquals(0, in.skip(10));
      in.seek(LENGTH - 1);
      assertEquals(data[LENGTH - 1] & 0xff, in.read());
    }
  }
}
