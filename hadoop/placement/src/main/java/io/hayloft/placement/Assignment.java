package io.hayloft.placement;

import io.hayloft.placement.ClusterIndex.Load;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;

/**
 * A writer's sticky node, and its part in the nodes' loads. Fields change under the object's own
 * lock, under which no lock of another object of this plug-in is taken; {@link #node} may be read
 * without it.
 */
final class Assignment {
  private static final Load[] NONE = new Load[0];

  final Writer writer;
  /** Rack of the client; the sticky node is sought there first. Null if unknown. */
  final String clientRack;
  /** Position in the ring of domains, for the layouts that go in turn. */
  final Turn turn;

  private volatile DatanodeDescriptor node;
  private volatile long lastUseMs;
  private long blocks;
  private boolean counted;
  private boolean gone;
  private Load first;
  private Load[] others = NONE;

  Assignment(Writer writer, String clientRack, long turn, long nowMs) {
    this.writer = writer;
    this.clientRack = clientRack;
    this.turn = new Turn(turn);
    this.lastUseMs = nowMs;
  }

  /** The sticky node; null before the first block. */
  DatanodeDescriptor node() {
    return node;
  }

  long lastUseMs() {
    return lastUseMs;
  }

  synchronized long blocks() {
    return blocks;
  }

  synchronized boolean active() {
    return counted;
  }

  /** Names another node; the load goes along. */
  synchronized void assign(DatanodeDescriptor to, Load load) {
    node = to;
    if (counted && first != null) {
      uncountFirst();
    }
    first = load;
    if (counted) {
      countFirst();
    }
  }

  /**
   * Takes the node of a finished file of the same client, unless others write there by now; called
   * before another thread sees this, and after {@code before} was retired. Returns whether it did.
   */
  boolean inherit(Assignment before) {
    Load load;
    DatanodeDescriptor from;
    synchronized (before) {
      from = before.node;
      load = before.first;
    }
    if (from == null || load == null || load.writers.get() > 0) {
      return false;
    }
    assign(from, load);
    return true;
  }

  /**
   * Whether the file seems to be closed: the node has fewer blocks under way than writers, so one
   * of them has stopped. The policy is not told when a file is closed; a wrong guess costs the file
   * its node.
   */
  synchronized boolean looksFinished() {
    return !counted || first == null || node.getBlocksScheduled() < first.streams.get();
  }

  /** Marks a use and counts the writer as active. */
  synchronized void use(long nowMs) {
    lastUseMs = nowMs;
    if (!counted && !gone) {
      counted = true;
      countAll();
    }
  }

  /** Notes where the other replicas of the newest block are. */
  synchronized void placed(Load[] otherReplicas) {
    blocks++;
    if (counted) {
      for (Load load : others) {
        load.streams.decrementAndGet();
      }
      for (Load load : otherReplicas) {
        load.streams.incrementAndGet();
      }
    }
    others = otherReplicas;
  }

  /** Moves the assignment away from {@code from}, unless it moved meanwhile. */
  synchronized boolean move(DatanodeDescriptor from, DatanodeDescriptor to, Load load) {
    if (node != from || gone) {
      return false;
    }
    assign(to, load);
    return true;
  }

  /** Stops counting the writer; its node stays known. */
  synchronized void idle() {
    if (counted) {
      counted = false;
      if (first != null) {
        uncountFirst();
      }
      for (Load load : others) {
        load.streams.decrementAndGet();
      }
    }
  }

  /** As {@link #idle}, for good: a use that comes late must not count it again. */
  synchronized void retire() {
    idle();
    gone = true;
  }

  private void countAll() {
    if (first != null) {
      countFirst();
    }
    for (Load load : others) {
      load.streams.incrementAndGet();
    }
  }

  private void countFirst() {
    first.streams.incrementAndGet();
    first.writers.incrementAndGet();
  }

  private void uncountFirst() {
    first.streams.decrementAndGet();
    first.writers.decrementAndGet();
  }
}
