package org.apache.hadoop.hdfs.server.blockmanagement;

import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.AddBlockFlag;
import org.apache.hadoop.hdfs.net.DFSNetworkTopology;
import org.apache.hadoop.hdfs.protocol.BlockStoragePolicy;
import org.apache.hadoop.hdfs.protocol.DatanodeID;
import org.apache.hadoop.hdfs.server.protocol.DatanodeStorage;
import org.apache.hadoop.hdfs.server.protocol.StorageReport;
import org.apache.hadoop.net.NetworkTopology;
import org.apache.hadoop.net.Node;
import org.apache.hadoop.net.NodeBase;

/**
 * The NameNode's own classes for a cluster that exists nowhere: a topology, descriptors that
 * "heartbeat" when a test says so, statistics computed from them. Stands in Hadoop's package for
 * their closed setters.
 */
public final class FakeCluster {
  /** Bytes of a block here. */
  public static final long BLOCK = 1L << 20;

  private static final long CAPACITY = 1000 * BLOCK;
  private static final Configuration DEFAULTS = new Configuration();
  public final DFSNetworkTopology topology = DFSNetworkTopology.getInstance(DEFAULTS);
  public final List<DatanodeDescriptor> nodes = new ArrayList<>();
  public final Stats stats = new Stats();
  public boolean avoidStale;
  /** Kept up as the NameNode does: the benchmark must not pay for a sum over all nodes. */
  private volatile int load;

  private final Host2NodesMap hosts = new Host2NodesMap();

  /** The statistics that the NameNode would give. */
  public final class Stats implements FSClusterStats {
    @Override
    public int getTotalLoad() {
      return load;
    }

    @Override
    public boolean isAvoidingStaleDataNodesForWrite() {
      return avoidStale;
    }

    @Override
    public int getNumDatanodesInService() {
      return (int) nodes.stream().filter(DatanodeDescriptor::isInService).count();
    }

    @Override
    public double getInServiceXceiverAverage() {
      return nodes.isEmpty() ? 0 : (double) load / nodes.size();
    }

    @Override
    public double getInServiceXceiverAverageForVolume() {
      return getInServiceXceiverAverage();
    }

    @Override
    public Map<StorageType, StorageTypeStats> getStorageTypeStats() {
      return new EnumMap<>(StorageType.class);
    }
  }

  /** Adds a node with one storage of each type. */
  public DatanodeDescriptor add(String location, String ip, int port, StorageType... types) {
    DatanodeID id =
        new DatanodeID(
            ip, "host-" + ip, UUID.nameUUIDFromBytes((ip + port).getBytes()).toString(), port, port + 1, 0, port + 2);
    DatanodeDescriptor node = new DatanodeDescriptor(id, location);
    StorageType[] wanted = types.length == 0 ? new StorageType[] {StorageType.DISK} : types;
    for (int i = 0; i < wanted.length; i++) {
      node.updateStorage(
          new DatanodeStorage(
              node.getDatanodeUuid() + "-" + i, DatanodeStorage.State.NORMAL, wanted[i]));
    }
    node.setAlive(true);
    topology.add(node);
    hosts.add(node);
    nodes.add(node);
    heartbeat(node, CAPACITY, 0);
    return node;
  }

  /** A heartbeat with so many bytes free on each storage and so many threads. */
  public void heartbeat(DatanodeDescriptor node, long free, int xceivers) {
    DatanodeStorageInfo[] storages = node.getStorageInfos();
    StorageReport[] reports = new StorageReport[storages.length];
    for (int i = 0; i < storages.length; i++) {
      DatanodeStorage storage =
          new DatanodeStorage(
              storages[i].getStorageID(), storages[i].getState(), storages[i].getStorageType());
      reports[i] = new StorageReport(storage, false, CAPACITY, 0, free, 0, 0);
    }
    load += xceivers - node.getXceiverCount();
    node.updateHeartbeat(reports, 0, 0, xceivers, 0, null);
  }

  /** A node that has room again and no load. */
  public void idle(DatanodeDescriptor node) {
    heartbeat(node, CAPACITY, 0);
  }

  /** Makes the node look as if it had not been heard of for so long. */
  public void silent(DatanodeDescriptor node, long ms) {
    node.setLastUpdateMonotonic(org.apache.hadoop.util.Time.monotonicNow() - ms);
  }

  public void decommissioning(DatanodeDescriptor node) {
    node.startDecommission();
  }

  public void remove(DatanodeDescriptor node) {
    topology.remove(node);
    nodes.remove(node);
    load -= node.getXceiverCount();
  }

  /** A node that was removed registers again. */
  public void restore(DatanodeDescriptor node) {
    node.setAlive(true);
    topology.add(node);
    nodes.add(node);
    load += node.getXceiverCount();
  }

  /** Blocks that the NameNode has scheduled to the node. */
  public void schedule(DatanodeDescriptor node, int blocks) {
    for (int i = 0; i < blocks; i++) {
      node.incrementBlocksScheduled(StorageType.DISK);
    }
  }

  public void unschedule(DatanodeDescriptor node, int blocks) {
    for (int i = 0; i < blocks; i++) {
      node.decrementBlocksScheduled(StorageType.DISK);
    }
  }

  /** Initialises a policy as the NameNode does. */
  public <P extends BlockPlacementPolicy> P start(P policy, Configuration conf) {
    policy.initialize(conf, stats, topology, hosts);
    return policy;
  }

  /** Initialises a policy as Balancer, Mover and fsck do. */
  public static <P extends BlockPlacementPolicy> P startInTool(
      P policy, Configuration conf, NetworkTopology topology) {
    policy.initialize(conf, null, topology, null);
    return policy;
  }

  /** A client on a host that is no DataNode. */
  public static Node client(String location, String ip) {
    return new NodeBase(location + "/" + ip);
  }

  /** A new block, as {@code addBlock} asks for it. */
  public static DatanodeStorageInfo[] newBlock(
      BlockPlacementPolicy policy, String path, int replicas, Node writer) {
    return newBlock(policy, path, replicas, writer, new HashSet<>(), null, hot(), null);
  }

  /** A new block with everything that a client may ask for. */
  public static DatanodeStorageInfo[] newBlock(
      BlockPlacementPolicy policy,
      String path,
      int replicas,
      Node writer,
      Set<Node> excluded,
      List<DatanodeDescriptor> favored,
      BlockStoragePolicy storagePolicy,
      EnumSet<AddBlockFlag> flags) {
    return policy.chooseTarget(
        path, replicas, writer, excluded, BLOCK, favored, storagePolicy, flags);
  }

  /** Further replicas of a block that has some, as after the loss of a node. */
  public static DatanodeStorageInfo[] again(
      BlockPlacementPolicy policy, int more, List<DatanodeStorageInfo> existing) {
    Set<Node> excluded = new HashSet<>();
    existing.forEach(storage -> excluded.add(storage.getDatanodeDescriptor()));
    return policy.chooseTarget(
        "/again", more, existing.get(0).getDatanodeDescriptor(), existing, false, excluded, BLOCK, hot(), null);
  }

  /** The replicas of a block that the NameNode would delete until so many are left. */
  public static List<DatanodeStorageInfo> surplus(
      BlockPlacementPolicy policy, int wanted, List<DatanodeStorageInfo> replicas) {
    // The policy takes each type out as it deletes one.
    List<StorageType> excess =
        new ArrayList<>(Collections.nCopies(replicas.size() - wanted, StorageType.DISK));
    return policy.chooseReplicasToDelete(replicas, replicas, wanted, excess, null, null);
  }

  public static BlockStoragePolicy hot() {
    return policy("HOT");
  }

  public static BlockStoragePolicy policy(String name) {
    return BlockStoragePolicySuite.createDefaultSuite().getPolicy(name);
  }
}
