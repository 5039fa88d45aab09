package io.hayloft.placement;

import io.hayloft.placement.ClusterIndex.Load;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
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
  private static final long MAX_AGE_NANOS = TimeUnit.SECONDS.toNanos(5);
  private static final int ATTEMPTS = 5;

  private final NetworkTopology topology;
  private final Domains domains;
  private final Map<String, Load> loads = new ConcurrentHashMap<>();
  private final ReentrantLock building = new ReentrantLock();
  private volatile ClusterIndex index;
  private volatile long builtAt;
  private volatile boolean outdated;

  ClusterView(NetworkTopology topology, Domains domains) {
    this.topology = topology;
    this.domains = domains;
  }

  Domains domains() {
    return domains;
  }

  /** The index, at most some seconds old and with the right number of nodes. */
  ClusterIndex get() {
    ClusterIndex now = index;
    if (now != null
        && !outdated
        && now.size() == topology.getNumOfLeaves()
        && System.nanoTime() - builtAt < MAX_AGE_NANOS) {
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
    ClusterIndex built = ClusterIndex.build(nodes == null ? List.of() : nodes, domains, loads);
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
