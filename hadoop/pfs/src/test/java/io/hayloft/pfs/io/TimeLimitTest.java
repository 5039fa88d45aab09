package io.hayloft.pfs.io;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.hayloft.pfs.TestRoot;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Calls to a mount that hangs, and what becomes of them when it answers again. */
class TimeLimitTest {
  private final TimeLimit limit = new TimeLimit("/mnt", 1, 500);
  private final CountDownLatch answers = new CountDownLatch(1);

  @AfterEach
  void close() {
    answers.countDown();
    limit.close();
  }

  private Void hang() throws IOException {
    try {
      assertTrue(answers.await(20, TimeUnit.SECONDS));
    } catch (InterruptedException e) {
      throw new InterruptedIOException();
    }
    return null;
  }

  /** Waits for the pool's one thread to have done all that was queued. */
  private void drain() throws IOException {
    answers.countDown();
    limit.run("drain", () -> null);
  }

  @Test
  void aCallGivenUpInTheQueueNeverHappens() throws IOException {
    assertThrows(MountHungException.class, () -> limit.run("hang", this::hang));
    AtomicBoolean happened = new AtomicBoolean();
    assertThrows(
        MountHungException.class,
        () ->
            limit.run(
                "delete",
                () -> {
                  happened.set(true);
                  return null;
                }));
    AtomicBoolean closed = new AtomicBoolean();
    assertThrows(
        MountHungException.class, () -> limit.runClose("close", () -> closed.set(true)));
    drain();
    assertFalse(happened.get());
    assertTrue(closed.get(), "but what was open is closed");
  }

  @Test
  void whatIsOpenIsClosedAfterItsFileSystem() throws IOException {
    AtomicBoolean closed = new AtomicBoolean();
    limit.close();
    limit.runClose("close", () -> closed.set(true));
    assertTrue(closed.get());
  }

  @Test
  void aCloseWithoutAWaitHappensOrIsLeft() throws Exception {
    AtomicBoolean closed = new AtomicBoolean();
    limit.closeSoon("close", () -> closed.set(true));
    limit.run("drain", () -> null);
    assertTrue(closed.get());
    // The call before leaves its room after it has answered: not later than this one begins.
    CountDownLatch hangs = new CountDownLatch(1);
    limit.startIfRoom(
        "hang",
        () -> {
          hangs.countDown();
          return hang();
        });
    assertTrue(hangs.await(20, TimeUnit.SECONDS));
    int left = 0;
    while (limit.startIfRoom("hang", this::hang) != null) {
      left++;
    }
    assertTrue(left > 0);
    limit.closeSoon("close", () -> closed.set(false));
    drain();
    assertTrue(closed.get(), "it waits for no room");
  }

  @Test
  void aDirectoryThatOpensLateIsClosed() throws IOException {
    Path directory = TestRoot.of("late");
    Files.createDirectories(directory.resolve("entry"));
    AtomicBoolean closed = new AtomicBoolean();
    assertThrows(
        MountHungException.class,
        () ->
            limit.run(
                "list",
                () -> {
                  hang();
                  return watched(Files.newDirectoryStream(directory), closed);
                }));
    drain();
    assertTrue(closed.get());
  }

  private static DirectoryStream<Path> watched(DirectoryStream<Path> of, AtomicBoolean closed) {
    return new DirectoryStream<>() {
      @Override
      public Iterator<Path> iterator() {
        return of.iterator();
      }

      @Override
      public void close() throws IOException {
        of.close();
        closed.set(true);
      }
    };
  }

  @Test
  void anInterruptDoesNotLoseAResultThatIsThere() throws IOException {
    Pending<Integer> ended = new Pending<>(limit, "ended");
    ended.carryOut(() -> 7);
    Thread.currentThread().interrupt();
    try {
      assertEquals(7, ended.await());
    } finally {
      assertTrue(Thread.interrupted(), "the caller still learns of it");
    }
  }
}
