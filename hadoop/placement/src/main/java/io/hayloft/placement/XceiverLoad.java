package io.hayloft.placement;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.FSClusterStats;
import org.apache.hadoop.hdfs.server.blockmanagement.StorageTypeStats;

/**
 * The stock rule about busy nodes, without the threads that one writer itself takes. With them a
 * lone writer in a large idle cluster would drive itself away from its node at each heartbeat.
 */
final class XceiverLoad {
  /** Threads that one stream takes on a stock DataNode: the receiver and the responder. */
  private static final int OWN_XCEIVERS = 2;

  private final FSClusterStats stats;
  private final double factor;
  private final boolean on;
  private final boolean byStorageType;
  private final boolean byVolume;

  /** Reads the stock keys; {@code on} and {@code factor} are what the stock policy has of them. */
  XceiverLoad(Configuration conf, FSClusterStats stats, boolean on, double factor) {
    this.stats = stats;
    this.factor = factor;
    this.on = on && stats != null;
    this.byStorageType =
        conf.getBoolean(
            DFSConfigKeys.DFS_NAMENODE_REDUNDANCY_CONSIDERLOADBYSTORAGETYPE_KEY,
            DFSConfigKeys.DFS_NAMENODE_REDUNDANCY_CONSIDERLOADBYSTORAGETYPE_DEFAULT);
    this.byVolume =
        conf.getBoolean(
            DFSConfigKeys.DFS_NAMENODE_REDUNDANCY_CONSIDERLOADBYVOLUME_KEY,
            DFSConfigKeys.DFS_NAMENODE_REDUNDANCY_CONSIDERLOADBYVOLUME_DEFAULT);
  }

  /** Whether others alone make the node too busy. */
  boolean overloadedByOthers(DatanodeDescriptor node) {
    if (!on) {
      return false;
    }
    int others = node.getXceiverCount() - OWN_XCEIVERS;
    double most =
        factor * (byStorageType ? averageOfTypes(node) : stats.getInServiceXceiverAverage());
    if (most > 0 && others > most) {
      return true;
    }
    if (!byVolume) {
      return false;
    }
    most = factor * node.getNumVolumesAvailable() * stats.getInServiceXceiverAverageForVolume();
    return most > 0 && others > most;
  }

  /** Threads a node, of the nodes in service that have a type of this node's. */
  private double averageOfTypes(DatanodeDescriptor node) {
    var all = stats.getStorageTypeStats();
    int nodes = 0;
    int xceivers = 0;
    for (StorageType type : node.getStorageTypes()) {
      StorageTypeStats of = all.get(type);
      if (of != null) {
        nodes += of.getNodesInService();
        xceivers += of.getNodesInServiceXceiverCount();
      }
    }
    return nodes == 0 ? 0 : (double) xceivers / nodes;
  }
}
