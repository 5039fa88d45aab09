package io.hayloft.placement;

import io.hayloft.placement.ClusterIndex.Load;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.hadoop.hdfs.AddBlockFlag;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.net.InnerNode;
import org.apache.hadoop.net.NetworkTopology;
import org.apache.hadoop.net.Node;
import org.apache.hadoop.net.NodeBase;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps a {@link ClusterIndex} up to date: built anew when the number of nodes differs, when a node
 * is not where the index has it, and at the latest after {@link #MAX_AGE_NANOS}. Readers never wait
 * for another's build unless there is no index yet.
 */
final class ClusterView {
  private static final Logger LOG = LoggerFactory.getLogger(ClusterView.class);
  /** Age at which a thread of the plug-in builds anew. */
  private static final long FRESH_NANOS = TimeUnit.SECONDS.toNanos(5);
  /** Age at which a caller does, if no thread of the plug-in did. */
  private static final long MAX_AGE_NANOS = TimeUnit.SECONDS.toNanos(30);

  private static final int ATTEMPTS = 5;

  private final NetworkTopology topology;
  private final Domains domains;
  private final ClusterIndex.Room room;
  private final Map<String, Load> loads = new ConcurrentHashMap<>();
  private final ReentrantLock building = new ReentrantLock();
  private volatile ClusterIndex index;
  private volatile long builtAt;
  private volatile boolean outdated;
  private final AtomicBoolean refreshing = new AtomicBoolean();

  /** {@code room} is asked about each node at each build. */
  ClusterView(NetworkTopology topology, Domains domains, ClusterIndex.Room room) {
    this.topology = topology;
    this.domains = domains;
    this.room = room;
  }

  Domains domains() {
    return domains;
  }

  /** The index, at most some seconds old and with the right number of nodes. */
  ClusterIndex get() {
    return notOlder(MAX_AGE_NANOS);
  }

  /** As {@link #get}, for the plug-in's own threads. */
  ClusterIndex fresh() {
    return notOlder(FRESH_NANOS);
  }

  private ClusterIndex notOlder(long nanos) {
    ClusterIndex now = index;
    if (now != null
        && !outdated
        && now.size() == topology.getNumOfLeaves()
        && System.nanoTime() - builtAt < nanos) {
      return now;
    }
    if (now == null) {
      building.lock();
    } else if (!building.tryLock()) {
      return now;
    }
    try {
      return build();
    } finally {
      building.unlock();
    }
  }

  /**
   * The index as it is, at most some seconds old. For the NameNode's questions under its lock,
   * where a build would stop all other calls: a thread of the plug-in builds in the background.
   */
  ClusterIndex known() {
    ClusterIndex now = index;
    if (now == null) {
      return get();
    }
    if ((outdated || now.size() != topology.getNumOfLeaves())
        && refreshing.compareAndSet(false, true)) {
      Ticker.soon(this::refresh);
    }
    return now;
  }

  private void refresh() {
    refreshing.set(false);
    fresh();
  }

  /**
   * With {@code NO_LOCAL_RACK}, the nodes of the writer's rack. The stock code excludes its network
   * location, which with {@code /rack/host} is its host only.
   */
  List<DatanodeDescriptor> restOfRack(Node writer, EnumSet<AddBlockFlag> flags) {
    if (flags == null || !flags.contains(AddBlockFlag.NO_LOCAL_RACK) || writer == null) {
      return List.of();
    }
    String location = writer.getNetworkLocation();
    return get().beyond(location, domains.rackOf(location));
  }

  /** Has the next {@link #get} build anew: a node was not as the index said. */
  void outdated() {
    outdated = true;
  }

  private ClusterIndex build() {
    outdated = false;
    builtAt = System.nanoTime();
    List<DatanodeDescriptor> nodes = nodes();
    if (nodes == null && index != null) {
      return index;
    }
    ClusterIndex built =
        ClusterIndex.build(nodes == null ? List.of() : nodes, domains, loads, room);
    // Assignments on nodes that left hold their Load until they move; a node that returns starts
    // anew.
    loads.keySet().removeIf(uuid -> built.find(uuid) == null);
    index = built;
    return built;
  }

  /**
   * All nodes. The tree cannot be locked from outside, so a walk that meets a change starts again.
   *
   * @return null if it met one each time
   */
  private List<DatanodeDescriptor> nodes() {
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
      try {
        List<DatanodeDescriptor> found = new ArrayList<>(topology.getNumOfLeaves());
        collect(topology.getNode(NodeBase.ROOT), found);
        return found;
      } catch (RuntimeException e) {
        LOG.debug("The topology changed while it was read", e);
      }
    }
    return null;
  }

  private static void collect(Node node, List<DatanodeDescriptor> found) {
    if (node instanceof InnerNode inner) {
      for (Node child : List.copyOf(inner.getChildren())) {
        collect(child, found);
      }
    } else if (node instanceof DatanodeDescriptor descriptor) {
      found.add(descriptor);
    }
  }
}
