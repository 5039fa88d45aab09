package io.hayloft.placement;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.AddBlockFlag;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.protocol.BlockType;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.HdfsConstants;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeManager;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.metrics2.MetricsRecordBuilder;
import org.apache.hadoop.test.MetricsAsserts;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * A real NameNode whose domains cannot all take a replica: the plug-in must not ask for what
 * nothing can give.
 */
class FullDomainsTest extends RealNameNode {
  private static final long ROOM = 1L << 30;
  /** Less than a block. */
  private static final long NO_ROOM = BLOCK / 2;
  private static final int FILES = 10;
  /**
   * Longer than several rounds of the redundancy and the decommission monitor. {@code
   * -Dquiet.ms=180000} watches for minutes.
   */
  private static final long QUIET_MS = Long.getLong("quiet.ms", 8_000);

  private static final StorageType[] DISK = {StorageType.DISK, StorageType.DISK};
  private static final StorageType[] ARCHIVE = {StorageType.ARCHIVE, StorageType.ARCHIVE};
  private static final StorageType[] BOTH = {StorageType.DISK, StorageType.ARCHIVE};
  private static final long[] MUCH = {ROOM, ROOM};
  private static final long[] FULL = {NO_ROOM, NO_ROOM};

  /** Two nodes on each of the hosts; {@code types} and {@code capacities} are those of a host. */
  private MiniDFSCluster start(
      Configuration conf, String[] hosts, StorageType[][] types, long[][] capacities)
      throws Exception {
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_DECOMMISSION_INTERVAL_KEY, 1);
    // A busy node is passed over, and its block is copied later; here no copy may be made.
    conf.setBoolean(DFSConfigKeys.DFS_NAMENODE_REDUNDANCY_CONSIDERLOAD_KEY, false);
    String[] locations = new String[2 * hosts.length];
    StorageType[][] typesOfNode = new StorageType[locations.length][];
    long[][] capacitiesOfNode = new long[locations.length][];
    for (int node = 0; node < locations.length; node++) {
      locations[node] = hosts[node / 2];
      typesOfNode[node] = types[node / 2];
      capacitiesOfNode[node] = capacities[node / 2];
    }
    MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(conf, dir.toFile())
            .numDataNodes(locations.length)
            .racks(locations)
            .storagesPerDatanode(types[0].length)
            .storageTypes(typesOfNode)
            .storageCapacities(capacitiesOfNode)
            .build();
    ready(cluster);
    return cluster;
  }

  /** Waits until the NameNode knows the capacities, which are set after a node's start. */
  private static void ready(MiniDFSCluster cluster) throws Exception {
    cluster.waitActive();
    cluster.triggerHeartbeats();
  }

  private static void decommission(MiniDFSCluster cluster, int node) throws Exception {
    DatanodeManager manager = cluster.getNamesystem().getBlockManager().getDatanodeManager();
    DatanodeDescriptor leaving =
        manager.getDatanode(cluster.getDataNodes().get(node).getDatanodeId());
    manager.getDatanodeAdminManager().startDecommission(leaving);
    until("node " + node + " is decommissioned", leaving::isDecommissioned);
  }

  private static long copies() {
    return MetricsAsserts.getLongCounter(
        "SuccessfulReReplications", MetricsAsserts.getMetrics("NameNodeActivity"));
  }

  /** Copies that the NameNode saw, copies that nodes sent, replicas that nodes deleted. */
  private static List<Long> counters(MiniDFSCluster cluster) {
    long sent = 0;
    long deleted = 0;
    for (DataNode node : cluster.getDataNodes()) {
      MetricsRecordBuilder of = MetricsAsserts.getMetrics(node.getMetrics().name());
      sent += MetricsAsserts.getLongCounter("BlocksReplicated", of);
      deleted += MetricsAsserts.getLongCounter("BlocksRemoved", of);
    }
    return List.of(copies(), sent, deleted);
  }

  /** The counters once nothing has changed them for three rounds of the monitors. */
  private static List<Long> atRest(MiniDFSCluster cluster) throws Exception {
    List<List<Long>> last = new ArrayList<>(List.of(counters(cluster)));
    until(
        "nodes neither copy nor delete",
        () -> {
          Thread.sleep(3_000);
          last.add(counters(cluster));
          return last.get(last.size() - 1).equals(last.get(last.size() - 2));
        });
    return last.get(last.size() - 1);
  }

  private static boolean whole(DistributedFileSystem fs) throws Exception {
    for (int file = 0; file < FILES; file++) {
      for (LocatedBlock block : hosts(fs, "/f-" + file).keySet()) {
        if (inService(block) != 3) {
          return false;
        }
      }
    }
    return true;
  }

  private static long inService(LocatedBlock block) {
    return Arrays.stream(block.getLocations())
        .filter(node -> node.getAdminState() == DatanodeInfo.AdminStates.NORMAL)
        .count();
  }

  private static void writeAll(DistributedFileSystem fs) throws Exception {
    for (int file = 0; file < FILES; file++) {
      write(fs, "/f-" + file, 3, 1);
    }
  }

  @Test
  @Timeout(180)
  void decommissioningEndsAlthoughADomainIsFull() throws Exception {
    String[] hosts = {"/r0/h0", "/r0/h1", "/r0/h2"};
    try (MiniDFSCluster cluster =
        start(
            conf(),
            hosts,
            new StorageType[][] {DISK, DISK, DISK},
            new long[][] {MUCH, MUCH, FULL})) {
      DistributedFileSystem fs = cluster.getFileSystem();
      writeAll(fs);
      decommission(cluster, 0);
      until("three replicas are in service", () -> whole(fs));
    }
  }

  @Test
  @Timeout(1800)
  void noBlockIsCopiedAgainBecauseADomainHasRoomOfAnotherType() throws Exception {
    for (StorageType[] third : new StorageType[][] {BOTH, ARCHIVE}) {
      long[] rooms = third == ARCHIVE ? MUCH : new long[] {NO_ROOM, ROOM};
      Configuration conf = conf();
      try (MiniDFSCluster cluster =
          start(
              conf,
              new String[] {"/r0/h0", "/r0/h1"},
              new StorageType[][] {DISK, DISK},
              new long[][] {MUCH, MUCH})) {
        String[] locations = {"/r0/h2", "/r0/h2"};
        cluster.startDataNodes(
            conf, 2, new StorageType[][] {third, third}, true, null, locations, null,
            new long[][] {rooms, rooms}, null, false, false, false, null, null, null);
        ready(cluster);
        DistributedFileSystem fs = cluster.getFileSystem();
        writeAll(fs);
        until("three replicas are reported", () -> whole(fs));
        // The NameNode counts a replica that is reported after its file was closed as a copy. A
        // client that sets a pipeline up twice leaves a replica that is deleted, without a copy.
        List<Long> before = atRest(cluster);
        assertEquals(0, before.get(1), "no node copied; " + before.get(2) + " replicas deleted");
        Thread.sleep(QUIET_MS);
        assertEquals(before, counters(cluster), "nothing is missing, so nothing is copied");
        decommission(cluster, 0);
        until("three replicas are in service", () -> whole(fs));
        // A source counts its copy after the target has reported it.
        Thread.sleep(1_000);
        List<Long> after = counters(cluster);
        long copied = after.get(0) - before.get(0);
        assertTrue(copied <= FILES, copied + " copies of " + FILES + " blocks");
        Thread.sleep(QUIET_MS);
        assertEquals(after, counters(cluster), "no block is copied twice");
      }
    }
  }

  @Test
  @Timeout(180)
  void favouredNodesKeepTheLimitOfARack() throws Exception {
    String[] hosts = {"/r0/h0", "/r0/h1", "/r0/h2", "/r1/h3"};
    try (MiniDFSCluster cluster =
        start(
            conf(),
            hosts,
            new StorageType[][] {DISK, DISK, DISK, DISK},
            new long[][] {MUCH, MUCH, MUCH, MUCH})) {
      DistributedFileSystem fs = cluster.getFileSystem();
      InetSocketAddress[] favoured = new InetSocketAddress[3];
      for (int host = 0; host < 3; host++) {
        favoured[host] = cluster.getDataNodes().get(2 * host).getXferAddress();
      }
      for (int file = 0; file < FILES; file++) {
        Path path = new Path("/favoured-" + file);
        try (FSDataOutputStream out =
            fs.create(
                path, FsPermission.getFileDefault(), true, BLOCK, (short) 3, BLOCK, null,
                favoured)) {
          out.write(new byte[BLOCK]);
        }
        until("all replicas are reported", () -> all(fs, path.toString(), 3, 3));
        for (var of : hosts(fs, path.toString()).values()) {
          Map<String, Integer> racks = new HashMap<>();
          of.forEach(host -> racks.merge(host.substring(0, 3), 1, Integer::sum));
          assertEquals(2, racks.size(), "the stock policy has two racks too: " + of);
        }
      }
    }
  }

  @Test
  @Timeout(180)
  void theWritersRackIsTakenIfNoOtherHasRoom() throws Exception {
    String[] hosts = {"/r0/h0", "/r0/h1", "/r0/h2", "/r1/h3", "/r2/h4"};
    try (MiniDFSCluster cluster =
        start(
            conf(),
            hosts,
            new StorageType[][] {DISK, DISK, DISK, DISK, DISK},
            new long[][] {MUCH, MUCH, MUCH, FULL, FULL})) {
      // The protocol has no such flag yet, so the NameNode is asked within the process.
      var blocks = cluster.getNamesystem().getBlockManager();
      DatanodeDescriptor writer =
          blocks.getDatanodeManager().getDatanode(cluster.getDataNodes().get(0).getDatanodeId());
      assertEquals(
          2,
          blocks.chooseTarget4NewBlock(
                  "/elsewhere",
                  2,
                  writer,
                  new HashSet<>(),
                  BLOCK,
                  null,
                  HdfsConstants.HOT_STORAGE_POLICY_ID,
                  BlockType.CONTIGUOUS,
                  null,
                  EnumSet.of(AddBlockFlag.NO_LOCAL_RACK))
              .length);
    }
  }
}
