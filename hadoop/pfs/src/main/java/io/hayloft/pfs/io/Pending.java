package io.hayloft.pfs.io;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;

/**
 * A call under way. It ends once: with a result, with an error, or given up by its caller. The
 * result of a call that was given up goes to {@link #whenGivenUp}, or is closed if it can be.
 *
 * @param <T> what the call gives
 */
public final class Pending<T> implements TimeLimit.Ticks {
  private enum State {
    RUNNING,
    DONE,
    GIVEN_UP
  }

  private final TimeLimit limit;
  private final String what;
  private final AtomicReference<State> state = new AtomicReference<>(State.RUNNING);
  private final CountDownLatch ended = new CountDownLatch(1);
  private volatile long lastTickNs = System.nanoTime();
  private volatile Consumer<T> late = Pending::closeLate;
  // Written before `state` becomes DONE.
  private T result;
  private Throwable error;

  Pending(TimeLimit limit, String what) {
    this.limit = limit;
    this.what = what;
  }

  String what() {
    return what;
  }

  /** What becomes of the result of a call that nothing waits for any more. */
  public Pending<T> whenGivenUp(Consumer<T> taker) {
    late = taker;
    return this;
  }

  void carryOut(TimeLimit.Call<T> call) {
    T value = null;
    Throwable failure = null;
    try {
      value = call.run();
    } catch (Throwable e) {
      // The waiter throws it; an error of this thread would end in nothing.
      failure = e;
    }
    result = value;
    error = failure;
    if (!state.compareAndSet(State.RUNNING, State.DONE) && value != null) {
      late.accept(value);
    }
    ended.countDown();
  }

  private static void closeLate(Object value) {
    // Not any Iterable: a directory that was opened is one too, and so is each path in it.
    if (value instanceof List<?> several) {
      several.forEach(Pending::closeLate);
    }
    if (value instanceof AutoCloseable) {
      try {
        ((AutoCloseable) value).close();
      } catch (Exception e) {
        // Nothing waits for it, and the mount was hung.
      }
    }
  }

  @Override
  public void tick() throws IOException {
    lastTickNs = System.nanoTime();
    checkWanted();
  }

  /** Throws when the caller has given up. */
  void checkWanted() throws IOException {
    if (state.get() == State.GIVEN_UP) {
      throw new IOException("given up: " + what);
    }
  }

  /** Gives the call up; returns false if it has ended before. */
  public boolean giveUp() {
    return state.compareAndSet(State.RUNNING, State.GIVEN_UP);
  }

  /** Waits for the result, at most the limit from the start or the last tick. */
  public T await() throws IOException {
    try {
      while (!waitOnce()) {
        if (millisLeft() <= 0 && giveUp()) {
          throw limit.hung(what);
        }
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      // Of a call that has ended, the caller gets the result even so: it may hold something.
      if (giveUp()) {
        throw (IOException) new InterruptedIOException("interrupted: " + what).initCause(e);
      }
    }
    if (state.get() == State.GIVEN_UP) {
      throw limit.hung(what);
    }
    return outcome();
  }

  private boolean waitOnce() throws InterruptedException {
    if (limit.limitMs() == 0) {
      ended.await();
      return true;
    }
    return ended.await(Math.max(1, millisLeft()), TimeUnit.MILLISECONDS);
  }

  private long millisLeft() {
    return limit.limitMs() - TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - lastTickNs);
  }

  private T outcome() throws IOException {
    if (error == null) {
      return result;
    }
    if (error instanceof IOException) {
      throw (IOException) error;
    }
    if (error instanceof RuntimeException) {
      throw (RuntimeException) error;
    }
    if (error instanceof Error) {
      throw (Error) error;
    }
    throw new IOException(what, error);
  }
}
