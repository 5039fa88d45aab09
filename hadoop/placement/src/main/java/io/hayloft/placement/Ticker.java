package io.hayloft.placement;

import java.lang.ref.WeakReference;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Calls objects at an interval for as long as another object holds them. The NameNode has no hook
 * to close a policy (it may replace one at run time), so the daemon threads here must not keep it
 * alive.
 */
final class Ticker {
  private static final Logger LOG = LoggerFactory.getLogger(Ticker.class);
  /** Two, so that a file on a mount that hangs does not stop the balancing of writers. */
  private static final ScheduledThreadPoolExecutor THREADS =
      new ScheduledThreadPoolExecutor(
          2,
          task -> {
            Thread thread = new Thread(task, "hayloft-placement");
            thread.setDaemon(true);
            return thread;
          });

  static {
    THREADS.setRemoveOnCancelPolicy(true);
  }

  private Ticker() {}

  static <T> void start(T owner, long intervalMs, Consumer<T> tick) {
    Task<T> task = new Task<>(new WeakReference<>(owner), tick);
    task.future =
        THREADS.scheduleWithFixedDelay(task, intervalMs, intervalMs, TimeUnit.MILLISECONDS);
  }

  /** Runs a task once, as soon as a thread is free; what it throws is logged. */
  static void soon(Runnable task) {
    THREADS.execute(
        () -> {
          try {
            task.run();
          } catch (Throwable e) {
            LOG.error("A task of the placement plug-in failed", e);
          }
        });
  }

  private static final class Task<T> implements Runnable {
    private final WeakReference<T> weak;
    private final Consumer<T> tick;
    private volatile ScheduledFuture<?> future;

    Task(WeakReference<T> weak, Consumer<T> tick) {
      this.weak = weak;
      this.tick = tick;
    }

    @Override
    public void run() {
      T owner = weak.get();
      try {
        if (owner != null) {
          tick.accept(owner);
        } else if (future != null) {
          future.cancel(false);
        }
      } catch (Throwable e) {
        // An exception would end the repetition, and so would an error.
        LOG.error("{} failed once and goes on", owner, e);
      }
    }
  }
}
