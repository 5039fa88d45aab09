package io.hayloft.placement;

import io.hayloft.placement.Choice.Level;
import io.hayloft.placement.Choice.Where;
import io.hayloft.placement.ClusterIndex.Domain;
import io.hayloft.placement.ClusterIndex.Entry;
import io.hayloft.placement.ClusterIndex.Rack;
import io.hayloft.placement.PlacementMetrics.Left;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.LongSupplier;
import java.util.function.Predicate;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;

/** The layouts: which node the next replica goes to. */
final class Placer {
  private static final Level[] NEW_DOMAIN = {
    Level.STRICT, Level.PASS_LOAD, Level.PASS_RACK_LIMIT, Level.PASS_LOAD_AND_RACK_LIMIT
  };

  private final PlacementConfig config;
  private final PlacementMetrics metrics;
  private final LongSupplier clockMs;
  private final boolean striped;
  /**
   * Stock staleness limit in milliseconds: a sticky node that misses heartbeats so long is given
   * up.
   */
  private final long staleMs;
  /** Whether a node is too busy even without one writer's own share. */
  private final Predicate<DatanodeDescriptor> overloaded;
  /** Turn of blocks without a known writer. */
  private final Turn turn = new Turn(ThreadLocalRandom.current().nextInt(1 << 20));

  Placer(
      PlacementConfig config,
      boolean striped,
      PlacementMetrics metrics,
      LongSupplier clockMs,
      long staleMs,
      Predicate<DatanodeDescriptor> overloaded) {
    this.config = config;
    this.striped = striped;
    this.metrics = metrics;
    this.clockMs = clockMs;
    this.staleMs = staleMs;
    this.overloaded = overloaded;
  }

  /** First replica of a new block without a local node. Null if no node will do. */
  Entry first(Choice choice, Assignment assignment, Set<StorageType> later, Reasons reasons) {
    if (striped) {
      return spread(choice, later, reasons);
    }
    if (!config.layout().sticky()) {
      return inTurn(choice, assignment, later, reasons);
    }
    if (assignment == null) {
      return anywhere(choice, Choice.SAMPLE, later, reasons.now("no writer known"));
    }
    // Two calls of one writer must not choose two nodes.
    synchronized (assignment) {
      Entry entry = stickyNode(choice, assignment, reasons);
      if (entry == null) {
        entry = newSticky(choice, assignment, later, reasons);
        if (entry == null) {
          return null;
        }
        assignment.assign(entry.node, entry.load);
        metrics.assigned.increment();
      }
      assignment.use(clockMs.getAsLong());
      return entry;
    }
  }

  private Entry stickyNode(Choice choice, Assignment assignment, Reasons reasons) {
    DatanodeDescriptor node = assignment.node();
    if (node == null) {
      return null;
    }
    Entry entry = choice.index.find(node);
    Left why = unfit(choice, entry);
    if (why == null && !choice.takeStorage(entry)) {
      why = Left.FULL;
    }
    if (why != null) {
      metrics.left(why);
      reasons.now("left its node " + node.getXferAddr() + ", which is " + why.text());
      return null;
    }
    metrics.sticky.increment();
    reasons.chose(entry, "the writer's node");
    return entry;
  }

  private Left unfit(Choice choice, Entry entry) {
    if (entry == null || !entry.current()) {
      choice.view.outdated();
      return Left.GONE;
    }
    if (choice.excluded.contains(entry.node)) {
      return Left.EXCLUDED;
    }
    if (!entry.node.isInService()) {
      return Left.NOT_IN_SERVICE;
    }
    if (entry.node.isStale(staleMs)) {
      return Left.STALE;
    }
    // In service and not stale, so what the stock rules still refuse is a slow node.
    if (!choice.rules.acceptable(entry.node, false, choice.results, true)) {
      return Left.SLOW;
    }
    return overloaded.test(entry.node) ? Left.OVERLOADED : null;
  }

  /**
   * First the client's rack, then anywhere; nodes that miss heartbeats only if there is no other.
   */
  private Entry newSticky(
      Choice choice, Assignment assignment, Set<StorageType> later, Reasons reasons) {
    boolean avoidStale = choice.avoidStale;
    choice.avoidStale = true;
    try {
      Rack rack = choice.index.racks.get(assignment.clientRack);
      if (rack != null) {
        Entry entry = choice.search(rack.nodes, Where.ANY, Level.STRICT, Choice.SAMPLE_STICKY);
        if (entry != null) {
          reasons.chose(entry, "new for the writer: in its rack, fewest writers");
          return entry;
        }
      }
      Entry entry =
          choice.search(choice.index.all, Where.ANY, Level.STRICT, Choice.SAMPLE_STICKY);
      if (entry != null) {
        reasons.chose(entry, "new for the writer: none fit in its rack, fewest writers");
        return entry;
      }
    } finally {
      choice.avoidStale = avoidStale;
    }
    return anywhere(choice, Choice.SAMPLE_STICKY, later, reasons);
  }

  /** Every further replica, of new blocks and of blocks to be replicated again. */
  Entry next(Choice choice, Assignment assignment, Set<StorageType> later, Reasons reasons) {
    if (striped) {
      return spread(choice, later, reasons);
    }
    if (choice.replicas() == 1) {
      Entry second = second(choice, assignment, later, reasons);
      if (second != null) {
        return second;
      }
    }
    return config.layout() == Layout.SPLIT
        ? spread(choice, later, reasons)
        : inTurn(choice, assignment, later, reasons);
  }

  /** Racks that a block of so many replicas must be on. */
  static int racksWanted(int replicas, boolean secondInSameRack) {
    return replicas <= 1 ? 1 : secondInSameRack && replicas == 2 ? 1 : 2;
  }

  private boolean needsRack(Choice choice) {
    return choice.distinctRacks() < 2 && choice.index.racks.size() > 1;
  }

  /** The second replica's rack; null if none of its nodes is in a new domain and will do. */
  private Entry second(
      Choice choice, Assignment assignment, Set<StorageType> later, Reasons reasons) {
    Rack firstRack = choice.rackOf(0);
    boolean same = config.secondInSameRack();
    if (config.layout() != Layout.SPLIT) {
      return ring(choice, assignment, entry -> entry.rack != firstRack, Level.STRICT, reasons);
    }
    Entry entry =
        same
            ? choice.search(firstRack.nodes, Where.ANY, Level.STRICT, Choice.SAMPLE)
            : choice.index.racks.size() < 2
                ? null
                : choice.search(
                    choice.index.all,
                    other -> other.rack != firstRack,
                    Level.STRICT,
                    Choice.SAMPLE);
    if (entry != null) {
      reasons.chose(entry, same ? "another domain of the same rack" : "another rack");
    }
    return entry;
  }

  /** A new domain in the rack with the fewest replicas, as far as there is one. */
  private Entry spread(Choice choice, Set<StorageType> later, Reasons reasons) {
    int most = choice.replicas();
    for (int fewest = choice.fewestInRack(); fewest < most; fewest++) {
      int limit = fewest;
      Entry entry =
          choice.search(
              choice.index.all,
              other -> choice.inRack(other.rack) <= limit,
              Level.STRICT,
              Choice.SAMPLE);
      if (entry != null) {
        reasons.chose(entry, "spread: its rack has " + limit + " of the replicas");
        return entry;
      }
    }
    return anywhere(choice, Choice.SAMPLE, later, reasons);
  }

  /** The next domain in turn, and within it the next node. */
  private Entry inTurn(
      Choice choice, Assignment assignment, Set<StorageType> later, Reasons reasons) {
    Entry entry = null;
    if (choice.replicas() > 0 && needsRack(choice)) {
      Rack firstRack = choice.rackOf(0);
      entry = ring(choice, assignment, other -> other.rack != firstRack, Level.STRICT, reasons);
    }
    if (entry == null) {
      entry = ring(choice, assignment, Where.ANY, Level.STRICT, reasons);
    }
    if (entry == null) {
      entry = anywhere(choice, Choice.SAMPLE, later, reasons);
    }
    if (assignment != null && choice.replicas() == 1 && entry != null) {
      synchronized (assignment) {
        assignment.assign(entry.node, entry.load);
        assignment.use(clockMs.getAsLong());
      }
    }
    return entry;
  }

  private Entry ring(
      Choice choice, Assignment assignment, Where where, Level level, Reasons reasons) {
    Domain[] ring = choice.index.ring;
    Entry[] found = new Entry[1];
    Turn order = assignment == null ? turn : assignment.turn;
    order.next(
        ring.length,
        station -> {
          Domain domain = ring[station];
          if (choice.inDomain(domain) == 0) {
            int start = Math.floorMod(domain.turn.get(), domain.nodes.entries.length);
            found[0] = choice.search(domain.nodes, start, where, level, 1);
            if (found[0] != null) {
              domain.turn.incrementAndGet();
            }
          }
          return found[0] != null;
        });
    if (found[0] != null) {
      reasons.chose(found[0], "next domain in turn");
    }
    return found[0];
  }

  /** Wherever there is a node, in a new domain if at all possible. */
  private Entry anywhere(Choice choice, int sample, Set<StorageType> later, Reasons reasons) {
    for (Level level : NEW_DOMAIN) {
      Entry entry = choice.search(choice.index.all, Where.ANY, level, sample);
      if (entry != null) {
        if (!level.rackLimit) {
          metrics.rackLimitPassed.increment();
        }
        if (!level.load) {
          metrics.overloadedTaken.increment();
        }
        reasons.chose(entry, level == Level.STRICT ? "new domain" : "new domain, " + level);
        return entry;
      }
    }
    if (choice.newDomainLater(later)) {
      // The stock code tries again with stale nodes, then with other storage types.
      reasons.now("waiting for stale nodes or other storage types before a domain is shared");
      return null;
    }
    return choice.replicas() == 0 ? null : shared(choice, reasons);
  }

  /** No further domain: the one with the fewest replicas. */
  private Entry shared(Choice choice, Reasons reasons) {
    int most = choice.mostInDomain();
    for (int fewest = 1; fewest <= most; fewest++) {
      int limit = fewest;
      Where where = entry -> choice.inDomain(entry.domain) <= limit;
      Entry entry =
          choice.search(choice.index.all, where, Level.SHARE_DOMAIN, Choice.SAMPLE);
      if (entry == null && (striped || choice.anyRack && fewest == most)) {
        entry =
            choice.search(choice.index.all, where, Level.SHARE_DOMAIN_AND_RACK, Choice.SAMPLE);
      }
      if (entry != null) {
        metrics.sharedDomain.increment();
        reasons.chose(entry, "no further domain will do, shares one with " + limit);
        return entry;
      }
    }
    return null;
  }
}
