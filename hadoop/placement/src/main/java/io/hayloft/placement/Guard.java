package io.hayloft.placement;

import java.util.concurrent.atomic.LongAdder;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps what goes wrong in the plug-in away from the NameNode, whose threads end the process at an
 * unexpected exception: the stock policy answers instead.
 */
final class Guard {
  private static final Logger LOG = LoggerFactory.getLogger(Guard.class);
  /** Stack traces of one policy; further failures are only counted. */
  private static final int MAX_LOGGED = 20;

  private final ThreadLocal<Boolean> stockNow = new ThreadLocal<>();
  private final LongAdder failures = new LongAdder();
  private volatile boolean off;

  /** Whether the stock policy answers this thread's questions. */
  boolean stock() {
    return off || stockNow.get() != null;
  }

  /** Lets the stock policy answer from now on. */
  void off() {
    off = true;
  }

  long failures() {
    return failures.sum();
  }

  /**
   * Answers by {@code ours}, and by {@code stock} if that fails. A class or method that Hadoop does
   * not have will be missing the next time too, so such a failure is for good.
   */
  <T> T answer(Supplier<T> ours, Supplier<T> stock) {
    try {
      return ours.get();
    } catch (LinkageError e) {
      off();
      failures.increment();
      LOG.error(
          "This Hadoop lacks what the placement plug-in needs: the stock policy answers from now"
              + " on. Use a version that the plug-in was built for.",
          e);
    } catch (RuntimeException e) {
      failures.increment();
      if (failures.sum() <= MAX_LOGGED) {
        LOG.error("The placement plug-in failed: the stock policy answers this time.", e);
      }
    }
    stockNow.set(true);
    try {
      return stock.get();
    } finally {
      stockNow.remove();
    }
  }
}
