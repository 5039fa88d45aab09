package io.hayloft.placement;

import static org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster.client;
import static org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster.newBlock;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import java.util.Arrays;
import java.util.EnumSet;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.protocol.DatanodeID;
import org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementPolicy;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.FSClusterStats;
import org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster;
import org.apache.hadoop.hdfs.server.blockmanagement.StorageTypeStats;
import org.apache.log4j.Level;
import org.apache.log4j.Logger;
import org.junit.jupiter.api.Test;

/** Nodes that come back as others, nodes that are busy, and what is noted of nodes. */
class NodeChangesTest {
  private final FakeCluster cluster = new FakeCluster();

  @Test
  void aNodeThatComesBackWithAnotherAddressIsInThatDomain() {
    for (int node = 1; node <= 3; node++) {
      cluster.add("/r1", "10.0.0." + node, 9866);
    }
    TestPolicy policy = TestPolicy.start(cluster);
    newBlock(policy, "/before", 2, client("/r1", "10.9.0.1"));
    DatanodeDescriptor moved = cluster.nodes.get(2);
    moved.updateRegInfo(
        new DatanodeID("10.0.0.1", "host", moved.getDatanodeUuid(), 9966, 9967, 0, 9968));
    for (int i = 0; i < 50; i++) {
      var targets = newBlock(policy, "/f" + i, 2, client("/r1", "10.9.0.1"));
      long addresses =
          Arrays.stream(targets)
              .map(target -> target.getDatanodeDescriptor().getIpAddr())
              .distinct()
              .count();
      assertEquals(2, addresses, "two replicas on one host");
    }
  }

  @Test
  void refusalsAreNotNotedWithoutBound() throws Exception {
    for (int node = 1; node <= 3; node++) {
      cluster.decommissioning(cluster.add("/r1", "10.0.0." + node, 9866));
    }
    cluster.add("/r1", "10.0.0.9", 9866);
    Logger logger = Logger.getLogger(BlockPlacementPolicy.class);
    Level before = logger.getLevel();
    logger.setLevel(Level.DEBUG);
    try {
      TestPolicy policy = TestPolicy.start(cluster);
      for (int writer = 0; writer < 5; writer++) {
        policy.first("/f" + writer, client("/r1", "10.9.0.1"));
      }
      for (int i = 0; i < 100; i++) {
        policy.tick();
      }
      assertTrue(notes().length() < 100, notes().length() + " characters are noted");
    } finally {
      logger.setLevel(before);
    }
  }

  /** The stock code's notes of this thread. */
  private static StringBuilder notes() throws Exception {
    var field =
        Class.forName(
                "org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementPolicyDefault")
            .getDeclaredField("debugLoggingBuilder");
    field.setAccessible(true);
    return (StringBuilder) ((ThreadLocal<?>) field.get(null)).get();
  }

  @Test
  void theLoadOfOthersIsThatOfTheTypesAndOfTheVolumes() {
    FSClusterStats stats = mock(FSClusterStats.class);
    StorageTypeStats archive = mock(StorageTypeStats.class);
    when(archive.getNodesInService()).thenReturn(10);
    when(archive.getNodesInServiceXceiverCount()).thenReturn(10);
    when(stats.getStorageTypeStats()).thenReturn(Map.of(StorageType.ARCHIVE, archive));
    when(stats.getInServiceXceiverAverage()).thenReturn(20.0);
    when(stats.getInServiceXceiverAverageForVolume()).thenReturn(2.0);
    DatanodeDescriptor node = mock(DatanodeDescriptor.class);
    when(node.getStorageTypes()).thenReturn(EnumSet.of(StorageType.ARCHIVE));
    when(node.getXceiverCount()).thenReturn(12);
    when(node.getNumVolumesAvailable()).thenReturn(1);
    Configuration conf = new Configuration(false);
    assertFalse(new XceiverLoad(conf, stats, true, 2).overloadedByOthers(node));
    conf.setBoolean(DFSConfigKeys.DFS_NAMENODE_REDUNDANCY_CONSIDERLOADBYSTORAGETYPE_KEY, true);
    assertTrue(new XceiverLoad(conf, stats, true, 2).overloadedByOthers(node));
    assertFalse(new XceiverLoad(conf, stats, false, 2).overloadedByOthers(node));
    Configuration byVolume = new Configuration(false);
    byVolume.setBoolean(DFSConfigKeys.DFS_NAMENODE_REDUNDANCY_CONSIDERLOADBYVOLUME_KEY, true);
    assertTrue(new XceiverLoad(byVolume, stats, true, 2).overloadedByOthers(node));
  }
}
