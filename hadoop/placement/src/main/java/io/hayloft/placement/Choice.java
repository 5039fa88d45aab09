package io.hayloft.placement;

import io.hayloft.placement.ClusterIndex.Domain;
import io.hayloft.placement.ClusterIndex.Entry;
import io.hayloft.placement.ClusterIndex.Group;
import io.hayloft.placement.ClusterIndex.Rack;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;
import org.apache.hadoop.net.Node;

/**
 * One choice of targets under way: what is placed so far, and the search for the next node. Of the
 * nodes that a step allows it takes a few at random and of these the one with the fewest streams,
 * then asks the stock rules; it goes on until all nodes of the step were asked.
 */
final class Choice {
  /** Nodes compared for a sticky node, which is chosen once a file. */
  static final int SAMPLE_STICKY = 64;
  /** Nodes compared for any other replica. */
  static final int SAMPLE = 8;

  /** How much a search insists on. */
  enum Level {
    /** A new domain, the limit per rack, and the load. */
    STRICT(true, true, true),
    /** A new domain although its nodes are busy: a rack too few would be mended by a copy. */
    PASS_LOAD(true, true, false),
    /** A new domain although its rack is at its limit: two replicas in one domain are worse. */
    PASS_RACK_LIMIT(true, false, true),
    /** A new domain although both is so. */
    PASS_LOAD_AND_RACK_LIMIT(true, false, false),
    /** No new domain is to be had. */
    SHARE_DOMAIN(false, true, true),
    /** As before, beyond the limit per rack. */
    SHARE_DOMAIN_AND_RACK(false, false, true);

    final boolean newDomain;
    final boolean rackLimit;
    final boolean load;

    Level(boolean newDomain, boolean rackLimit, boolean load) {
      this.newDomain = newDomain;
      this.rackLimit = rackLimit;
      this.load = load;
    }
  }

  /** Which nodes a search may take, beyond its level. */
  @FunctionalInterface
  interface Where {
    /** All nodes. */
    Where ANY = entry -> true;

    boolean allows(Entry entry);
  }

  final ClusterView view;
  final ClusterIndex index;
  final NodeRules rules;
  final List<DatanodeStorageInfo> results;
  final Set<Node> excluded;
  final EnumMap<StorageType, Integer> types;
  final long blockSize;
  final int maxPerRack;
  boolean avoidStale;
  /**
   * Whether a rack may be full of replicas if there is no other node. A block that lacks one must
   * get it; a new block is written with fewer, as by the stock policy.
   */
  boolean anyRack;

  /** Domains and racks of the replicas placed so far, in the same order. */
  private final List<Domain> usedDomains = new ArrayList<>(4);

  private final List<Rack> usedRacks = new ArrayList<>(4);

  Choice(
      ClusterView view,
      NodeRules rules,
      List<DatanodeStorageInfo> results,
      List<DatanodeStorageInfo> favored,
      Set<Node> excluded,
      EnumMap<StorageType, Integer> types,
      long blockSize,
      int maxPerRack,
      boolean avoidStale) {
    this.view = view;
    this.index = view.get();
    this.rules = rules;
    this.results = results;
    this.excluded = excluded;
    this.types = types;
    this.blockSize = blockSize;
    this.maxPerRack = maxPerRack;
    this.avoidStale = avoidStale;
    for (DatanodeStorageInfo storage : favored) {
      if (!results.contains(storage)) {
        used(storage.getDatanodeDescriptor());
      }
    }
    for (DatanodeStorageInfo storage : results) {
      used(storage.getDatanodeDescriptor());
    }
  }

  /** Counts a replica on the node, wherever it came from. */
  void used(DatanodeDescriptor node) {
    Entry entry = index.find(node);
    if (entry != null && entry.current()) {
      usedDomains.add(entry.domain);
      usedRacks.add(entry.rack);
    } else {
      usedDomains.add(index.domain(view.domains().domain(node)));
      usedRacks.add(index.rack(view.domains().rack(node)));
    }
  }

  int replicas() {
    return usedDomains.size();
  }

  Rack rackOf(int replica) {
    return usedRacks.get(replica);
  }

  int inDomain(Domain domain) {
    int count = 0;
    for (int i = 0; i < usedDomains.size(); i++) {
      if (usedDomains.get(i) == domain) {
        count++;
      }
    }
    return count;
  }

  int inRack(Rack rack) {
    int count = 0;
    for (int i = 0; i < usedRacks.size(); i++) {
      if (usedRacks.get(i) == rack) {
        count++;
      }
    }
    return count;
  }

  int distinctRacks() {
    int distinct = 0;
    for (int i = 0; i < usedRacks.size(); i++) {
      if (usedRacks.indexOf(usedRacks.get(i)) == i) {
        distinct++;
      }
    }
    return distinct;
  }

  /** The smallest number of replicas in any rack. */
  int fewestInRack() {
    int fewest = Integer.MAX_VALUE;
    if (index.racks.size() > distinctRacks()) {
      return 0;
    }
    for (Rack rack : usedRacks) {
      fewest = Math.min(fewest, inRack(rack));
    }
    return fewest;
  }

  /** The largest number of replicas in any domain. */
  int mostInDomain() {
    int most = 0;
    for (Domain domain : usedDomains) {
      most = Math.max(most, inDomain(domain));
    }
    return most;
  }

  /** Searches from a random start. */
  Entry search(Group group, Where where, Level level, int sample) {
    int n = group == null ? 0 : group.entries.length;
    return n == 0
        ? null
        : search(group, ThreadLocalRandom.current().nextInt(n), where, level, sample);
  }

  /**
   * Finds a node and takes a storage of it. Types are sought one after the other, each over the
   * whole group, as the stock policy does.
   *
   * @param start where the walk over the group starts; with a sample of 1 the first that will do is
   *     taken
   * @return null if no node of the group will do
   */
  Entry search(Group group, int start, Where where, Level level, int sample) {
    for (StorageType type : types.keySet()) {
      Entry found = search(group, start, where, level, sample, type);
      if (found != null) {
        return found;
      }
    }
    return null;
  }

  private Entry search(
      Group group, int start, Where where, Level level, int sample, StorageType type) {
    int n = group.entries.length;
    Entry[] candidates = new Entry[Math.min(sample, n)];
    int[] streams = new int[candidates.length];
    int next = 0;
    while (next < n) {
      int count = 0;
      while (next < n && count < candidates.length) {
        Entry entry = group.at(start, next++);
        if (allowed(entry, level, type) && where.allows(entry)) {
          candidates[count] = entry;
          streams[count++] = entry.streams();
          if (streams[count - 1] == 0) {
            break;
          }
        }
      }
      Entry taken = takeBest(candidates, streams, count, level, type);
      if (taken != null) {
        return taken;
      }
    }
    return null;
  }

  /** Asks the candidates, the one with the fewest streams first. */
  private Entry takeBest(
      Entry[] candidates, int[] streams, int count, Level level, StorageType type) {
    for (int left = count; left > 0; left--) {
      int best = 0;
      for (int i = 1; i < left; i++) {
        if (streams[i] < streams[best]) {
          best = i;
        }
      }
      Entry entry = candidates[best];
      if (take(entry, level.load, type)) {
        return entry;
      }
      candidates[best] = candidates[left - 1];
      streams[best] = streams[left - 1];
    }
    return null;
  }

  /** What can be said without asking the node. */
  private boolean allowed(Entry entry, Level level, StorageType type) {
    return !(level.newDomain && inDomain(entry.domain) > 0)
        && !(level.rackLimit && inRack(entry.rack) >= maxPerRack)
        && (types.size() == 1 || entry.node.hasStorageType(type))
        && !excluded.contains(entry.node);
  }

  private boolean take(Entry entry, boolean checkLoad, StorageType type) {
    if (!entry.current()) {
      view.outdated();
      return false;
    }
    if (!rules.acceptable(entry.node, checkLoad, results, avoidStale)
        || rules.take(entry.node, blockSize, results, type) == null) {
      return false;
    }
    taken(entry, type);
    return true;
  }

  /** Takes this very node, if a storage of any wanted type has room; no other rule is asked. */
  boolean takeStorage(Entry entry) {
    for (StorageType type : types.keySet()) {
      if (rules.take(entry.node, blockSize, results, type) != null) {
        taken(entry, type);
        return true;
      }
    }
    return false;
  }

  private void taken(Entry entry, StorageType type) {
    excluded.add(entry.node);
    types.merge(type, -1, (left, one) -> left + one == 0 ? null : left + one);
    usedDomains.add(entry.domain);
    usedRacks.add(entry.rack);
  }

  /**
   * Whether some node in a new domain would do if stale nodes or these other types were allowed.
   */
  boolean newDomainLater(Set<StorageType> otherTypes) {
    if (!avoidStale && types.keySet().containsAll(otherTypes)) {
      return false;
    }
    Set<StorageType> wanted = new java.util.HashSet<>(otherTypes);
    wanted.addAll(types.keySet());
    for (Entry entry : index.all.entries) {
      if (inDomain(entry.domain) == 0
          && !excluded.contains(entry.node)
          && entry.current()
          && rules.acceptable(entry.node, false, results, false)
          && hasRoom(entry, wanted)) {
        return true;
      }
    }
    return false;
  }

  private boolean hasRoom(Entry entry, Set<StorageType> wanted) {
    for (StorageType type : wanted) {
      if (rules.hasRoom(entry.node, blockSize, type)) {
        return true;
      }
    }
    return false;
  }

  /** Types still wanted, with their numbers; for messages. */
  Map<StorageType, Integer> wantedTypes() {
    return types;
  }
}
