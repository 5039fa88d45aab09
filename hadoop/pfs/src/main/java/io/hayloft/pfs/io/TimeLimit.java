package io.hayloft.pfs.io;

import java.io.Closeable;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Calls to the mount, each with a limit of time. A mount whose servers are gone can block a thread
 * for ever, and no signal gets it out. So threads of this pool make the calls, and the caller
 * waits for at most the limit. Threads and queue are bounded: a hung mount costs no more than
 * that.
 *
 * <p>A limit of 0 makes every call on the caller's own thread, without a limit.
 */
public final class TimeLimit implements Closeable {
  private static final Logger LOG = LoggerFactory.getLogger(TimeLimit.class);

  /** Calls that may wait for each thread. */
  private static final int QUEUED_PER_THREAD = 8;

  private static final AtomicLong THREAD_NUMBER = new AtomicLong();

  /** Set on the pool's threads: a call within a call must not wait for a second thread. */
  private static final ThreadLocal<Boolean> INSIDE = ThreadLocal.withInitial(() -> false);

  private final String mount;
  private final long limitMs;
  private final ThreadPoolExecutor threads;
  private final Semaphore room;

  /** A call to the mount. */
  @FunctionalInterface
  public interface Call<T> {
    T run() throws IOException;
  }

  /** A call that takes as long as it has work; the limit holds from one tick to the next. */
  @FunctionalInterface
  public interface LongCall<T> {
    T run(Ticks ticks) throws IOException;
  }

  /** What a long call tells its caller. */
  @FunctionalInterface
  public interface Ticks {
    /** Says that the call moves; throws when its caller has given up. */
    void tick() throws IOException;
  }

  /** Calls for {@code mount}, which errors name; {@code limitMs} 0 is no limit. */
  public TimeLimit(String mount, int threadCount, long limitMs) {
    if (threadCount < 1 || limitMs < 0) {
      throw new IllegalArgumentException("threads " + threadCount + ", limit " + limitMs + " ms");
    }
    this.mount = mount;
    this.limitMs = limitMs;
    int callsMax = threadCount * (QUEUED_PER_THREAD + 1);
    this.room = new Semaphore(callsMax);
    this.threads =
        new ThreadPoolExecutor(
            threadCount,
            threadCount,
            30,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(callsMax),
            TimeLimit::newThread);
    threads.allowCoreThreadTimeOut(true);
  }

  private static Thread newThread(Runnable work) {
    Thread thread =
        new Thread(
            () -> {
              INSIDE.set(true);
              work.run();
            },
            "pfs-" + THREAD_NUMBER.incrementAndGet());
    // A hung call must not keep the process alive.
    thread.setDaemon(true);
    return thread;
  }

  /** The limit in milliseconds; 0 is none. */
  public long limitMs() {
    return limitMs;
  }

  public int threadCount() {
    return threads.getMaximumPoolSize();
  }

  /** Makes the call and waits for it. {@code what} is for the error: "open /a". */
  public <T> T run(String what, Call<T> call) throws IOException {
    return runLong(what, ticks -> call.run());
  }

  /** Makes a call that may take longer than the limit as long as it ticks. */
  public <T> T runLong(String what, LongCall<T> call) throws IOException {
    if (limitMs == 0 || INSIDE.get()) {
      return call.run(() -> {});
    }
    Pending<T> pending = new Pending<>(this, what);
    enqueue(
        pending,
        () -> {
          // It may have waited behind a hung mount: what its caller gave up must not happen later.
          pending.checkWanted();
          return call.run(pending);
        });
    return pending.await();
  }

  /** Closes and waits for it. It is closed even when its caller gives up before. */
  public void runClose(String what, Closeable open) throws IOException {
    // Of a file system that is closed the threads are gone, and what is open shall not stay so.
    if (limitMs == 0 || INSIDE.get() || threads.isShutdown()) {
      open.close();
    } else {
      startClose(what, open).await();
    }
  }

  /** Starts to close, and does not wait. */
  public Pending<Void> startClose(String what, Closeable open) throws IOException {
    return start(
        what,
        () -> {
          open.close();
          return null;
        });
  }

  /**
   * Closes what failed, without a wait. With no room in the queue, or no file system any more, it
   * is left to the garbage collector.
   */
  public void closeSoon(String what, Closeable failed) {
    try {
      Pending<Void> closing =
          startIfRoom(
              what,
              () -> {
                failed.close();
                return null;
              });
      if (closing == null) {
        LOG.warn("{}: every thread waits for the mount {}, so it stays open", what, mount);
      }
    } catch (IOException e) {
      LOG.debug("{}", what, e);
    }
  }

  /** Starts the call and does not wait, save for room in the queue. */
  public <T> Pending<T> start(String what, Call<T> call) throws IOException {
    Pending<T> pending = new Pending<>(this, what);
    enqueue(pending, call);
    return pending;
  }

  /** As {@link #start}, but null if the queue has no room now. */
  public <T> Pending<T> startIfRoom(String what, Call<T> call) throws IOException {
    if (!room.tryAcquire()) {
      return null;
    }
    Pending<T> pending = new Pending<>(this, what);
    execute(pending, call);
    return pending;
  }

  private <T> void enqueue(Pending<T> pending, Call<T> call) throws IOException {
    try {
      long waitMs = limitMs == 0 ? Long.MAX_VALUE : limitMs;
      if (!room.tryAcquire(waitMs, TimeUnit.MILLISECONDS)) {
        throw hung(pending.what());
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted before: " + pending.what());
    }
    execute(pending, call);
  }

  private <T> void execute(Pending<T> pending, Call<T> call) throws IOException {
    try {
      threads.execute(
          () -> {
            try {
              pending.carryOut(call);
            } finally {
              room.release();
            }
          });
    } catch (RejectedExecutionException e) {
      room.release();
      throw new IOException("the file system is closed: " + pending.what(), e);
    }
  }

  /** The error of a call that took too long. */
  public MountHungException hung(String what) {
    return new MountHungException(
        what
            + ": no answer from the mount "
            + mount
            + " within "
            + limitMs
            + " ms; see whether its servers run and `ls "
            + mount
            + "` answers, or raise fs.pfs.timeout");
  }

  /** Stops the idle threads; calls that run go on. */
  @Override
  public void close() {
    threads.shutdown();
  }
}
