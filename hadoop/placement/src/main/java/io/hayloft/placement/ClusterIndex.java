package io.hayloft.placement;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;

/**
 * The cluster's nodes by rack and failure domain, as arrays from which a random node costs no lock.
 * Built anew when the topology changes; what it says of a node is checked again when the node is
 * chosen.
 */
final class ClusterIndex {
  /** A node, and how many writers have replicas on it. */
  static final class Entry {
    final DatanodeDescriptor node;
    final Domains.Stamp stamp;
    final Load load;
    /** Types that the node could take a block on, and types of the blocks that it has. */
    final int able;

    final int held;
    Rack rack;
    Domain domain;

    Entry(DatanodeDescriptor node, Load load, Room room) {
      this.node = node;
      this.stamp = Domains.stamp(node);
      this.load = load;
      this.able = room.able(node);
      this.held = room.held(node);
    }

    /** Whether the node is still in the topology and where the index has it. */
    boolean current() {
      return node.getParent() != null && stamp.fits(node);
    }

    /**
     * Streams being written to the node: what assignments say, or what the NameNode has scheduled
     * if that is more (writers on storage nodes, copies between nodes).
     */
    int streams() {
      return Math.max(load.streams.get(), node.getBlocksScheduled());
    }
  }

  /** What a node has of each storage type, as a set of bits by {@code StorageType.ordinal()}. */
  interface Room {
    /** Types of which the node could take a block: in service, not slow, with room. */
    int able(DatanodeDescriptor node);

    /** Types of the storages that hold blocks; those of all storages if none holds one. */
    int held(DatanodeDescriptor node);
  }

  /** Counters of one node; they outlive the index, by the node's UUID. */
  static final class Load {
    /** Active assignments whose last block has a replica here, first replicas included. */
    final AtomicInteger streams = new AtomicInteger();

    /** Active assignments whose first replica goes here. */
    final AtomicInteger writers = new AtomicInteger();
  }

  /**
   * Nodes of a rack, a domain or all, in an order that hops about so that neighbours are rarely
   * related.
   */
  static final class Group {
    final Entry[] entries;
    private final int stride;

    Group(List<Entry> entries) {
      this.entries = entries.toArray(new Entry[0]);
      this.stride = strideFor(this.entries.length);
    }

    /** The i-th node of a walk that starts at {@code start} and meets each node once. */
    Entry at(int start, int i) {
      return entries[(int) ((start + (long) i * stride) % entries.length)];
    }

    /**
     * Near the golden section and without a common divisor with n, so that the walk is a
     * permutation.
     */
    private static int strideFor(int n) {
      int stride = Math.max(1, (int) (n * 0.618));
      while (gcd(stride, n) > 1) {
        stride++;
      }
      return stride;
    }

    private static int gcd(int a, int b) {
      return b == 0 ? a : gcd(b, a % b);
    }
  }

  /** A rack. */
  static final class Rack {
    final String name;
    Group nodes;
    /** Types that some node could take a block on. */
    int able;

    Rack(String name) {
      this.name = name;
    }
  }

  /** A failure domain; one of the mapping file or of upgrade domains may lie in several racks. */
  static final class Domain {
    final String name;
    Group nodes;
    /** Types that some node could take a block on. */
    int able;

    /** Where the next replica in turn goes within the domain. */
    final AtomicInteger turn = new AtomicInteger();

    Domain(String name) {
      this.name = name;
    }
  }

  final Group all;
  final Map<String, Rack> racks;
  /** All domains, neighbours in different racks as far as possible. */
  final Domain[] ring;
  final int domainsInService;
  final int racksInService;
  /** Domains of which some node could take a block of some type. */
  final int domainsWithRoom;

  private final Map<String, Entry> byUuid;
  private final Map<String, Domain> domains;
  /** Domains that could take a block, by storage type. */
  private final int[] domainsAble = new int[StorageType.values().length];

  private ClusterIndex(
      List<Entry> entries, Map<String, Rack> racks, Map<String, Domain> domains, Domain[] ring) {
    this.all = new Group(entries);
    this.racks = racks;
    this.domains = domains;
    this.ring = ring;
    this.byUuid = new HashMap<>(entries.size() * 2);
    entries.forEach(entry -> byUuid.put(entry.node.getDatanodeUuid(), entry));
    this.domainsInService =
        (int) entries.stream().filter(e -> e.node.isInService()).map(e -> e.domain).distinct().count();
    this.racksInService =
        (int) entries.stream().filter(e -> e.node.isInService()).map(e -> e.rack).distinct().count();
    this.domainsWithRoom = (int) Arrays.stream(ring).filter(domain -> domain.able != 0).count();
    for (Domain domain : ring) {
      for (int type = 0; type < domainsAble.length; type++) {
        domainsAble[type] += domain.able >> type & 1;
      }
    }
  }

  /** Builds the index; loads are taken from {@code loads}, which gets those of new nodes. */
  static ClusterIndex build(
      List<DatanodeDescriptor> nodes, Domains domains, Map<String, Load> loads, Room room) {
    Map<String, Rack> racks = new LinkedHashMap<>();
    Map<String, Domain> byName = new LinkedHashMap<>();
    Map<Rack, List<Entry>> ofRack = new LinkedHashMap<>();
    Map<Domain, List<Entry>> ofDomain = new LinkedHashMap<>();
    List<Entry> entries = new ArrayList<>(nodes.size());
    for (DatanodeDescriptor node : nodes) {
      Load load = loads.computeIfAbsent(node.getDatanodeUuid(), uuid -> new Load());
      Entry entry = new Entry(node, load, room);
      entry.rack = racks.computeIfAbsent(domains.rack(node), Rack::new);
      entry.domain = byName.computeIfAbsent(domains.domain(node), Domain::new);
      entry.rack.able |= entry.able;
      entry.domain.able |= entry.able;
      entries.add(entry);
      ofRack.computeIfAbsent(entry.rack, rack -> new ArrayList<>()).add(entry);
      ofDomain.computeIfAbsent(entry.domain, domain -> new ArrayList<>()).add(entry);
    }
    ofRack.forEach((rack, list) -> rack.nodes = new Group(list));
    ofDomain.forEach((domain, list) -> domain.nodes = new Group(list));
    return new ClusterIndex(entries, racks, byName, ring(ofDomain));
  }

  /** Deals the domains out rack by rack; a domain counts for the rack of its first node. */
  private static Domain[] ring(Map<Domain, List<Entry>> ofDomain) {
    Map<Rack, List<Domain>> ofRack = new LinkedHashMap<>();
    ofDomain.forEach(
        (domain, list) ->
            ofRack.computeIfAbsent(list.get(0).rack, rack -> new ArrayList<>()).add(domain));
    List<Domain> ring = new ArrayList<>(ofDomain.size());
    for (int i = 0; ring.size() < ofDomain.size(); i++) {
      for (List<Domain> ofOne : ofRack.values()) {
        if (i < ofOne.size()) {
          ring.add(ofOne.get(i));
        }
      }
    }
    return ring.toArray(new Domain[0]);
  }

  /**
   * How many further domains could take a replica of a block.
   *
   * @param types what the block may be stored on; what each of them has is had for certain
   * @param used domains of the block's replicas
   */
  int furtherDomains(int types, List<String> used) {
    int fewest = Integer.MAX_VALUE;
    for (int type = 0; type < domainsAble.length; type++) {
      if ((types >> type & 1) != 0) {
        int further = domainsAble[type];
        for (String name : used) {
          Domain domain = domains.get(name);
          further -= domain == null ? 0 : domain.able >> type & 1;
        }
        fewest = Math.min(fewest, further);
      }
    }
    return fewest == Integer.MAX_VALUE ? 0 : fewest;
  }

  /**
   * How many further racks could take a replica, at most {@code enough}.
   *
   * @param types as for {@link #furtherDomains}
   * @param usedRacks racks of the block's replicas
   * @param usedDomains domains in which the replica must not be; null if it may be in any
   */
  int furtherRacks(
      int types, int enough, List<String> usedRacks, List<String> usedDomains) {
    int fewest = types == 0 ? 0 : enough;
    for (int type = 0; type < domainsAble.length && fewest > 0; type++) {
      if ((types >> type & 1) != 0) {
        int bit = 1 << type;
        int further = 0;
        for (Rack rack : racks.values()) {
          if (further == fewest) {
            break;
          }
          if ((rack.able & bit) != 0
              && !usedRacks.contains(rack.name)
              && (usedDomains == null || hasOther(rack, bit, usedDomains))) {
            further++;
          }
        }
        fewest = further;
      }
    }
    return fewest;
  }

  private static boolean hasOther(Rack rack, int bit, List<String> usedDomains) {
    for (Entry entry : rack.nodes.entries) {
      if ((entry.able & bit) != 0 && !usedDomains.contains(entry.domain.name)) {
        return true;
      }
    }
    return false;
  }

  int size() {
    return all.entries.length;
  }

  /** The entry of a node; null if the index does not know it. */
  Entry find(DatanodeDescriptor node) {
    return byUuid.get(node.getDatanodeUuid());
  }

  /**
   * Nodes of a rack, for those who may go to another; none if the location is the rack, or few
   * racks are left.
   */
  List<DatanodeDescriptor> beyond(String location, String rackName) {
    Rack rack = racks.get(rackName);
    if (rack == null || rackName.equals(location) || racks.size() <= 2) {
      return List.of();
    }
    return Arrays.stream(rack.nodes.entries).map(entry -> entry.node).toList();
  }

  /** Counters of the nodes that hold targets, without one of them. */
  Load[] loads(DatanodeStorageInfo[] targets, DatanodeDescriptor without) {
    List<Load> loads = new ArrayList<>(targets.length);
    for (DatanodeStorageInfo target : targets) {
      Entry entry = find(target.getDatanodeDescriptor());
      if (entry != null && entry.node != without) {
        loads.add(entry.load);
      }
    }
    return loads.toArray(new Load[0]);
  }

  /** The rack of that name; one without nodes if the index does not know it. */
  Rack rack(String name) {
    Rack rack = racks.get(name);
    return rack == null ? new Rack(name) : rack;
  }

  /** The domain of that name; one without nodes if the index does not know it. */
  Domain domain(String name) {
    Domain domain = domains.get(name);
    return domain == null ? new Domain(name) : domain;
  }

  /** The entry of a node by its UUID; null if the index does not know it. */
  Entry find(String uuid) {
    return byUuid.get(uuid);
  }
}
