package io.hayloft.placement;

import java.util.concurrent.atomic.AtomicLongArray;
import java.util.function.LongSupplier;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;

/**
 * Sets of nodes whose blocks could not be spread any further when it was tried.
 *
 * <p>The question whether a block is placed well comes without its size and its storage policy, so
 * {@link ClusterIndex#demand} can ask for a domain that this very block cannot have. The choice of
 * targets knows both. What it found stands here for a while, so that no block waits for ever.
 *
 * <p>A table of fixed size in which a later entry replaces an earlier one; safe without locks,
 * since a torn entry only repeats an attempt or skips one.
 */
final class Unplaceable {
  private static final int SLOTS = 1 << 16;
  private static final long MIX = 0x9E3779B97F4A7C15L;
  /** After this long an attempt is due again: room may have come. */
  static final long FOUND_NONE_MS = 600_000;
  /** So long attempts must fail. */
  static final long TRYING_MS = 15_000;
  /** After this long a copy is due again that the NameNode deleted because of its storage type. */
  static final long DELETED_MS = 86_400_000;

  private final AtomicLongArray keys = new AtomicLongArray(SLOTS);
  private final AtomicLongArray untilMs = new AtomicLongArray(SLOTS);
  private final LongSupplier clockMs;

  Unplaceable(LongSupplier clockMs) {
    this.clockMs = clockMs;
  }

  /**
   * What stands for a set of nodes, in any order. Nodes out of service are left out, since a choice
   * does not count them either.
   */
  static long key(Iterable<? extends DatanodeInfo> nodes) {
    long sum = 1;
    for (DatanodeInfo node : nodes) {
      if (node.isInService()) {
        long hash = (node.getDatanodeUuid().hashCode() + 1L) * MIX;
        sum += (hash ^ hash >>> 29) * MIX;
      }
    }
    return sum;
  }

  /** Notes for so long that nothing more can be had. */
  void add(long key, long forMs) {
    int slot = (int) (key >>> 48);
    keys.set(slot, key);
    untilMs.set(slot, clockMs.getAsLong() + forMs);
  }

  /**
   * Notes an attempt in vain. One may be bad luck: only if attempts fail for {@link #TRYING_MS} is
   * there nothing to be had.
   */
  void triedInVain(long key) {
    int slot = (int) (key >>> 48);
    long now = clockMs.getAsLong();
    long known = keys.get(slot) == key ? untilMs.get(slot) : 0;
    // A negative time is that of the first attempt.
    if (known >= 0 && known <= now || known < 0 && now + known > FOUND_NONE_MS) {
      untilMs.set(slot, -now);
      keys.set(slot, key);
    } else if (known < 0 && now + known >= TRYING_MS) {
      add(key, FOUND_NONE_MS);
    }
  }

  boolean contains(long key) {
    int slot = (int) (key >>> 48);
    return keys.get(slot) == key && untilMs.get(slot) > clockMs.getAsLong();
  }
}
