package io.hayloft.pfs.read;

import io.hayloft.pfs.io.BufferPool;
import io.hayloft.pfs.io.Pending;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * The groups of one vectored read. Some of the pool's threads read them one after the other; the
 * rest of the threads is left to go on with another copy when these hang. The caller's buffers are
 * filled after the mount has answered, so a late answer never lands in one.
 */
final class VectoredRun {
  private final Reads reads;
  private final Source source;
  private final String name;
  private final Consumer<Integer> counted;
  // Both are guarded by `this`. Groups end without the lock, since callers then run.
  private final Deque<RangeGroup> waiting;
  private int workers;

  /** What one thread does until no group waits, or until it hangs. The run locks. */
  private final class Worker {
    /** Null before the first and between two. */
    private RangeGroup group;

    private Attempt attempt = new Attempt(source);
    private CompletableFuture<Void> clock = new CompletableFuture<>();
    private boolean over;

    Worker(RangeGroup group) {
      this.group = group;
    }
  }

  VectoredRun(
      Reads reads,
      Source source,
      String name,
      Consumer<Integer> counted,
      Deque<RangeGroup> groups) {
    this.reads = reads;
    this.source = source;
    this.name = name;
    this.counted = counted;
    this.waiting = groups;
  }

  void begin() {
    int wanted = Math.min(reads.threadsOfVectored(), waiting.size());
    for (int n = 0; n < wanted; n++) {
      Worker worker = new Worker(null);
      synchronized (this) {
        workers++;
        windUp(worker);
      }
      // Only the first waits for room in the queue: it can read all alone.
      start(worker, n == 0);
    }
  }

  private void start(Worker worker, boolean waits) {
    IOException failure;
    try {
      Pending<Void> started =
          waits
              ? reads.limit().start("read " + name, () -> work(worker))
              : reads.limit().startIfRoom("read " + name, () -> work(worker));
      if (started != null) {
        return;
      }
      failure = reads.limit().hung("read " + name);
    } catch (IOException e) {
      failure = e;
    }
    leave(worker, failure);
  }

  private Void work(Worker worker) {
    IOException failure = null;
    try {
      RangeGroup group = next(worker);
      while (group != null) {
        read(worker, group);
        group = next(worker);
      }
    } catch (RuntimeException | Error e) {
      failure = new IOException("read " + name, e);
      throw e;
    } finally {
      leave(worker, failure);
    }
    return null;
  }

  private synchronized RangeGroup next(Worker worker) {
    if (worker.over) {
      return null;
    }
    if (worker.group == null) {
      worker.group = waiting.poll();
    }
    worker.attempt = new Attempt(source);
    windUp(worker);
    return worker.group;
  }

  private void read(Worker worker, RangeGroup group) {
    IOException failure = null;
    try {
      fill(worker, group);
    } catch (IOException e) {
      failure = e;
    }
    synchronized (this) {
      if (worker.over) {
        return;
      }
      worker.clock.complete(null);
      worker.group = null;
    }
    if (failure == null) {
      group.complete();
    } else {
      group.fail(failure);
    }
  }

  private void fill(Worker worker, RangeGroup group) throws IOException {
    // One that was given up meanwhile fails at its first read.
    long at = group.filledTo();
    BufferPool pool = group.end() - at > reads.small().size() ? reads.large() : reads.small();
    ByteBuffer buffer = pool.takeIfLeft();
    if (buffer == null) {
      pool = reads.small();
      buffer = pool.take(reads.limit().limitMs());
    }
    try {
      while (at < group.end()) {
        int length = (int) Math.min(buffer.capacity(), group.end() - at);
        Chunk chunk = Chunk.fill(worker.attempt, buffer, at, length);
        chunk.check();
        if (!chunk.buffer.hasRemaining()) {
          throw new EOFException(name + " ends at " + at + ", within a range");
        }
        if (!take(worker, group, chunk)) {
          return;
        }
        at = chunk.end();
      }
    } finally {
      pool.giveBack(buffer);
    }
  }

  private synchronized boolean take(Worker worker, RangeGroup group, Chunk chunk) {
    if (!worker.over) {
      counted.accept(group.fill(chunk));
      windUp(worker);
    }
    return !worker.over;
  }

  /** Lets the limit of time begin anew; with one of 0 there is none. */
  private void windUp(Worker worker) {
    worker.clock.complete(null);
    CompletableFuture<Void> clock = new CompletableFuture<>();
    worker.clock = clock;
    if (reads.limit().limitMs() > 0) {
      clock
          .orTimeout(reads.limit().limitMs(), TimeUnit.MILLISECONDS)
          .whenComplete((nothing, late) -> {
            if (late != null) {
              // Not on this thread, which keeps the time of all: ranges that fail call their user.
              CompletableFuture.runAsync(() -> hung(worker, clock));
            }
          });
    }
  }

  /** Another worker goes on with the group, and with another copy. */
  private void hung(Worker worker, CompletableFuture<Void> clock) {
    RangeGroup group;
    synchronized (this) {
      if (worker.over || worker.clock != clock) {
        return;
      }
      worker.over = true;
      group = worker.group;
    }
    try {
      worker.attempt.moveOn(reads.limit().hung("read " + name));
    } catch (IOException e) {
      end(group, e);
      return;
    }
    Worker another = new Worker(group);
    synchronized (this) {
      windUp(another);
    }
    start(another, false);
  }

  private void leave(Worker worker, IOException failure) {
    RangeGroup group;
    synchronized (this) {
      if (worker.over) {
        return;
      }
      worker.over = true;
      worker.clock.complete(null);
      group = worker.group;
    }
    end(group, failure);
  }

  /** A worker ends. With a failure its group fails, and with the last worker all that wait. */
  private void end(RangeGroup group, IOException failure) {
    List<RangeGroup> failed = new ArrayList<>();
    if (group != null) {
      failed.add(group);
    }
    synchronized (this) {
      workers--;
      if (workers == 0) {
        failed.addAll(waiting);
        waiting.clear();
      }
    }
    failed.forEach(each -> each.fail(failure));
  }
}
