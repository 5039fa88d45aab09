package io.hayloft.placement;

import io.hayloft.placement.ClusterIndex.Entry;
import io.hayloft.placement.ClusterIndex.Group;
import io.hayloft.placement.ClusterIndex.Rack;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Moves active assignments from nodes with many writers to nodes with few. A node outside the
 * client's rack counts as if it had {@code drift + 1} writers more, so leaving the rack must be
 * worth it, and coming home is done as soon as it costs nothing.
 */
final class Balance {
  private static final Logger LOG = LoggerFactory.getLogger(Balance.class);
  /** Moves of one run; the next run goes on. */
  private static final int MAX_MOVES = 1_000;

  private final int drift;
  private final NodeRules rules;
  private final PlacementMetrics metrics;

  Balance(int drift, NodeRules rules, PlacementMetrics metrics) {
    this.drift = drift;
    this.rules = rules;
    this.metrics = metrics;
  }

  /** Returns how many assignments moved. */
  int run(List<Assignment> assignments, ClusterIndex index) {
    Map<Entry, List<Assignment>> byNode = new LinkedHashMap<>();
    for (Assignment assignment : assignments) {
      DatanodeDescriptor node = assignment.node();
      Entry entry = node == null || !assignment.active() ? null : index.find(node);
      if (entry != null) {
        byNode.computeIfAbsent(entry, e -> new ArrayList<>()).add(assignment);
      }
    }
    List<Entry> crowded = Snapshot.sorted(byNode.keySet(), entry -> -writers(entry));
    // Those that wrote last first: of the others some may have stopped.
    byNode.replaceAll((node, of) -> Snapshot.sorted(of, assignment -> -assignment.lastUseMs()));
    Idlest idlest = new Idlest();
    int moves = 0;
    for (Entry from : crowded) {
      for (Assignment assignment : byNode.get(from)) {
        if (moves == MAX_MOVES) {
          return moves;
        }
        Entry to = better(assignment, from, index, idlest);
        if (to != null && assignment.move(from.node, to.node, to.load)) {
          LOG.debug(
              "Moved {} from {} with {} writers to {} with {}",
              assignment.writer.path(),
              from.node,
              writers(from),
              to.node,
              writers(to));
          metrics.balanced.increment();
          idlest.changed();
          moves++;
        }
      }
    }
    return moves;
  }

  private static int writers(Entry entry) {
    return entry.load.writers.get();
  }

  /** A node that is worth the move; null if there is none. */
  private Entry better(Assignment assignment, Entry from, ClusterIndex index, Idlest idlest) {
    Rack home = index.racks.get(assignment.clientRack);
    Entry best = null;
    int bestCost = cost(from, home) - drift;
    if (bestCost < 1) {
      return null;
    }
    for (Group group : new Group[] {home == null ? null : home.nodes, index.all}) {
      Entry entry = group == null ? null : idlest.of(group);
      if (entry != null && entry != from && cost(entry, home) + 1 <= bestCost) {
        best = entry;
        bestCost = cost(entry, home);
      }
    }
    return best;
  }

  private int cost(Entry entry, Rack home) {
    return writers(entry) + (home == null || entry.rack == home ? 0 : drift + 1);
  }

  /** The usable node with the fewest writers of each group, sought again after a move. */
  private final class Idlest {
    private final Map<Group, Entry> known = new HashMap<>();

    Entry of(Group group) {
      return known.computeIfAbsent(group, this::search);
    }

    void changed() {
      known.clear();
    }

    private Entry search(Group group) {
      Entry best = null;
      for (Entry entry : group.entries) {
        if ((best == null || writers(entry) < writers(best))
            && entry.node.getParent() != null
            && rules.acceptable(entry.node, true, List.of(), true)) {
          best = entry;
        }
      }
      return best;
    }
  }
}
