package io.hayloft.placement;

import io.hayloft.placement.Writer.Client;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;
import org.apache.hadoop.ipc.CallerConnection;

/**
 * All assignments: bounded, least recently used first out, found by writer. Stripes by client keep
 * concurrent calls apart; all files of a client are in one stripe. No lock is taken inside a
 * stripe's but an assignment's own.
 */
final class Assignments {
  private static final int STRIPES = 32;
  /** Files of one client that are looked through for one that is finished. */
  private static final int TAKE_OVER_SCAN = 16;
  /**
   * A file younger than this may not have its first block scheduled yet, so it is never called
   * finished.
   */
  static final long TAKE_OVER_MIN_IDLE_MS = 5;
  /** Between two blocks of a file none is under way; this is longer. */
  static final long SETTLE_MIN_IDLE_MS = 1_000;

  private final Stripe[] stripes = new Stripe[STRIPES];
  private final int maxPerStripe;
  private final LongSupplier clockMs;
  private final PlacementMetrics metrics;
  private final AtomicLong turns = new AtomicLong();

  /** What is known of a client process. */
  private static final class Process {
    final List<Assignment> files = new ArrayList<>(1);
    CallerConnection connection;
  }

  private static final class Stripe {
    /** In order of use, the least recent first. */
    final LinkedHashMap<Writer, Assignment> byWriter = new LinkedHashMap<>(16, 0.75f, true);

    final Map<Client, Process> byClient = new HashMap<>();
  }

  Assignments(int max, LongSupplier clockMs, PlacementMetrics metrics) {
    for (int i = 0; i < STRIPES; i++) {
      stripes[i] = new Stripe();
    }
    this.maxPerStripe = Math.max(1, max / STRIPES);
    this.clockMs = clockMs;
    this.metrics = metrics;
  }

  /**
   * The writer's assignment, a new one if there is none. A client that starts a file after it has
   * finished another goes on with the other's node, unless another writer is there by now.
   */
  Assignment get(Writer writer, String clientRack) {
    long now = clockMs.getAsLong();
    CallerConnection connection = writer.client().known() ? CallerConnection.current() : null;
    Stripe stripe = stripe(writer);
    synchronized (stripe) {
      Assignment found = stripe.byWriter.get(writer);
      if (found != null) {
        Process process = stripe.byClient.get(writer.client());
        if (process != null && connection != null) {
          process.connection = connection;
        }
        return found;
      }
      Process process = stripe.byClient.computeIfAbsent(writer.client(), client -> new Process());
      process.connection = connection;
      Assignment made = new Assignment(writer, clientRack, turns.getAndIncrement(), now);
      Assignment before = writer.client().known() ? oldestFinished(process, now) : null;
      if (before != null) {
        drop(stripe, before);
        stripe.byClient.putIfAbsent(writer.client(), process);
        if (made.inherit(before)) {
          metrics.takenOver.increment();
        }
      }
      process.files.add(made);
      stripe.byWriter.put(writer, made);
      evict(stripe);
      return made;
    }
  }

  private static Assignment oldestFinished(Process process, long now) {
    Assignment oldest = null;
    int looked = 0;
    for (Assignment file : process.files) {
      if (looked++ == TAKE_OVER_SCAN) {
        break;
      }
      if (now - file.lastUseMs() >= TAKE_OVER_MIN_IDLE_MS
          && (oldest == null || file.lastUseMs() < oldest.lastUseMs())
          && file.looksFinished()) {
        oldest = file;
      }
    }
    return oldest;
  }

  private void evict(Stripe stripe) {
    while (stripe.byWriter.size() > maxPerStripe) {
      drop(stripe, stripe.byWriter.values().iterator().next());
      metrics.evicted.increment();
    }
  }

  private static void drop(Stripe stripe, Assignment assignment) {
    stripe.byWriter.remove(assignment.writer);
    forget(stripe, assignment);
  }

  /** Takes the assignment out of its client's list and out of the loads. */
  private static void forget(Stripe stripe, Assignment assignment) {
    assignment.retire();
    Process process = stripe.byClient.get(assignment.writer.client());
    if (process != null) {
      process.files.remove(assignment);
      if (process.files.isEmpty()) {
        stripe.byClient.remove(assignment.writer.client());
      }
    }
  }

  /**
   * Stops counting writers that were quiet for {@code activeMs}, and forgets them too if their
   * connection is closed or if they were quiet for {@code expiryMs}.
   */
  void sweep(long activeMs, long expiryMs) {
    long now = clockMs.getAsLong();
    for (Stripe stripe : stripes) {
      synchronized (stripe) {
        Iterator<Assignment> eldest = stripe.byWriter.values().iterator();
        while (eldest.hasNext()) {
          Assignment assignment = eldest.next();
          long quiet = now - assignment.lastUseMs();
          if (quiet < activeMs) {
            break;
          }
          boolean expired = quiet >= expiryMs;
          if (expired || disconnected(stripe, assignment)) {
            eldest.remove();
            forget(stripe, assignment);
            (expired ? metrics.expired : metrics.clientGone).increment();
          } else {
            assignment.idle();
          }
        }
      }
    }
  }

  /**
   * Stops counting writers whose files seem to be closed: those that were quiet longest at nodes
   * with more writers than blocks under way. They would keep the place of a writer that is not
   * there, and be moved instead of one that is. A wrong guess lasts until the file's next block.
   */
  void settle() {
    long now = clockMs.getAsLong();
    List<Assignment> quiet = list();
    quiet.removeIf(assignment -> now - assignment.lastUseMs() < SETTLE_MIN_IDLE_MS);
    for (Assignment assignment : Snapshot.sorted(quiet, Assignment::lastUseMs)) {
      if (assignment.active() && assignment.looksFinished()) {
        assignment.idle();
        metrics.settled.increment();
      }
    }
  }

  private static boolean disconnected(Stripe stripe, Assignment assignment) {
    Process process = stripe.byClient.get(assignment.writer.client());
    return process != null && process.connection != null && !process.connection.isOpen();
  }

  int size() {
    int size = 0;
    for (Stripe stripe : stripes) {
      synchronized (stripe) {
        size += stripe.byWriter.size();
      }
    }
    return size;
  }

  /** All assignments at this moment. */
  List<Assignment> list() {
    List<Assignment> list = new ArrayList<>();
    for (Stripe stripe : stripes) {
      synchronized (stripe) {
        list.addAll(stripe.byWriter.values());
      }
    }
    return list;
  }

  private Stripe stripe(Writer writer) {
    int hash = writer.client().hashCode();
    // Without a process id many files may share a client, so the file tells the stripe then.
    if (!writer.client().known()) {
      hash = hash * 31 + writer.path().hashCode();
    }
    hash *= 0x9E3779B9;
    return stripes[hash >>> 27];
  }
}
