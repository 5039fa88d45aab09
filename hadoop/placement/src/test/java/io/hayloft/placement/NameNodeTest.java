package io.hayloft.placement;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Map;
import javax.management.ObjectName;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonConfigurationKeysPublic;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.server.balancer.RunBalancer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * A real NameNode with the plug-in, and twelve DataNodes with little disks: three hosts with four
 * each.
 */
class NameNodeTest extends RealNameNode {
  private static final long CAPACITY = 100L * BLOCK;

  private MiniDFSCluster start(Configuration conf, long capacity) throws Exception {
    String[] locations = new String[12];
    for (int i = 0; i < 12; i++) {
      locations[i] = "/r" + i / 8 + "/h" + i / 4;
    }
    return new MiniDFSCluster.Builder(conf, dir.toFile())
        .numDataNodes(12)
        .racks(locations)
        .storagesPerDatanode(1)
        .storageCapacities(new long[] {capacity})
        .build();
  }

  @Test
  @Timeout(300)
  void hostsAsDomainsFromWriteToLossOfAHost() throws Exception {
    Configuration conf = conf();
    try (MiniDFSCluster cluster = start(conf, 1L << 30)) {
      DistributedFileSystem fs = cluster.getFileSystem();
      for (int file = 0; file < 20; file++) {
        write(fs, "/two-" + file, 2, 3);
        write(fs, "/three-" + file, 3, 2);
      }
      for (int file = 0; file < 20; file++) {
        hosts(fs, "/two-" + file).forEach((block, of) -> assertEquals(2, of.size(), block + ""));
        hosts(fs, "/three-" + file).forEach((block, of) -> assertEquals(3, of.size(), block + ""));
      }
      assertTrue(fsck(conf).contains("Mis-replicated blocks:\t\t0 "), () -> "fsck agrees");

      // Fewer replicas: what goes leaves two hosts.
      fs.setReplication(new org.apache.hadoop.fs.Path("/three-0"), (short) 2);
      until("excess replicas are deleted", () -> all(fs, "/three-0", 2, 2));

      // A host is lost: the rest is copied, within the rule.
      for (int node = 0; node < 4; node++) {
        cluster.stopDataNode(0);
      }
      cluster.setDataNodesDead();
      until(
          "all blocks are on both other hosts",
          () -> {
            for (int file = 0; file < 20; file++) {
              if (!all(fs, "/two-" + file, 2, 2)) {
                return false;
              }
            }
            return true;
          });
      var name = new ObjectName(PlacementMBean.NAME);
      assertTrue((Long) ManagementFactory.getPlatformMBeanServer().getAttribute(name, "Choices") > 80);
    }
  }

  @Test
  @Timeout(300)
  void theBalancerKeepsTheRule() throws Exception {
    Configuration conf = conf();
    conf.setLong(DFSConfigKeys.DFS_BALANCER_GETBLOCKS_MIN_BLOCK_SIZE_KEY, 1);
    // What it cannot move it shall not wait for long.
    conf.setInt(DFSConfigKeys.DFS_BALANCER_MAX_NO_MOVE_INTERVAL_KEY, 2_000);
    conf.setLong(DFSConfigKeys.DFS_BALANCER_MAX_ITERATION_TIME_KEY, 8_000);
    conf.setLong(DFSConfigKeys.DFS_BALANCER_MOVEDWINWIDTH_KEY, 1_000);
    try (MiniDFSCluster cluster = start(conf, CAPACITY)) {
      DistributedFileSystem fs = cluster.getFileSystem();
      for (int file = 0; file < 20; file++) {
        write(fs, "/f-" + file, 2, 10);
      }
      // An empty node on each host.
      StorageType[][] types = {{StorageType.DISK}, {StorageType.DISK}, {StorageType.DISK}};
      long[][] capacities = {{CAPACITY}, {CAPACITY}, {CAPACITY}};
      String[] locations = {"/r0/h0", "/r0/h1", "/r1/h2"};
      cluster.startDataNodes(
          conf, 3, types, true, null, locations, null, capacities, null, false, false, false, null, null, null);
      cluster.waitActive();
      Collection<java.net.URI> nameNodes =
          Collections.singletonList(java.net.URI.create("hdfs://localhost:" + cluster.getNameNodePort()));
      int code = RunBalancer.run(nameNodes, conf);
      // Balanced, or nothing left that it may move.
      assertTrue(code == 0 || code == -2 || code == -3, "balancer says " + code);
      for (int file = 0; file < 20; file++) {
        hosts(fs, "/f-" + file).forEach((block, of) -> assertEquals(2, of.size(), block + ""));
      }
      int moved = 0;
      for (int node = 12; node < 15; node++) {
        String address = cluster.getDataNodes().get(node).getDatanodeId().getXferAddr();
        for (int file = 0; file < 20; file++) {
          for (LocatedBlock block :
              fs.getClient().getLocatedBlocks("/f-" + file, 0, Long.MAX_VALUE).getLocatedBlocks()) {
            moved += (int) Arrays.stream(block.getLocations()).filter(n -> n.getXferAddr().equals(address)).count();
          }
        }
      }
      assertTrue(moved > 0, "the balancer moved nothing, so nothing was shown");
      assertTrue(fsck(conf).contains("Mis-replicated blocks:\t\t0 "));
    }
  }

  @Test
  @Timeout(120)
  void badConfigurationStopsTheNameNode() throws Exception {
    String missing = dir.resolve("missing").toString();
    String mapping = CommonConfigurationKeysPublic.NET_TOPOLOGY_NODE_SWITCH_MAPPING_IMPL_KEY;
    Map<Map<String, String>, String> mistakes =
        Map.of(
            Map.of(PlacementKeys.LAYOUT, "stripes"),
            "hayloft.placement.layout is 'stripes': use split, round-robin, hybrid or random.",
            Map.of(PlacementKeys.DOMAINS, "file"),
            "hayloft.placement.domains=file needs the file's path in hayloft.placement.domains.file.",
            Map.of(PlacementKeys.DOMAINS, "file", PlacementKeys.DOMAINS_FILE, missing),
            "Cannot read the file " + missing + " of hayloft.placement.domains.file: it does not exist.",
            Map.of(PlacementKeys.DOMAINS, "host", PlacementKeys.DOMAINS_FILE, missing),
            "hayloft.placement.domains.file is set, but hayloft.placement.domains is host, which does not use it: ",
            Map.of(PlacementKeys.LAYOUT, "round-robin", PlacementKeys.SECOND_REPLICA, "same-rack"),
            "hayloft.placement.second-replica is set together with hayloft.placement.layout=round-robin, ",
            Map.of(PlacementKeys.TOPOLOGY_FILE, missing, mapping, FileTopologyMapping.class.getName()),
            "Cannot read the file " + missing + " of hayloft.topology.file: it does not exist.");
    for (var mistake : mistakes.entrySet()) {
      Configuration conf = conf();
      mistake.getKey().forEach(conf::set);
      Throwable error =
          assertThrows(
              Exception.class,
              () ->
                  new MiniDFSCluster.Builder(conf, dir.toFile())
                      .numDataNodes(0)
                      .useConfiguredTopologyMappingClass(true)
                      .build()
                      .close(),
              () -> "started with " + mistake.getKey());
      while (error.getCause() != null && !error.getMessage().contains(mistake.getValue())) {
        error = error.getCause();
      }
      assertTrue(error.getMessage().contains(mistake.getValue()), error.toString());
    }
  }

  @Test
  @Timeout(120)
  void theTopologyFilePlacesDataNodesAndClients() throws Exception {
    Path file = dir.resolve("topology");
    Files.writeString(file, "127.0.0.1 /r7/h3\n");
    Configuration conf = conf();
    conf.set(PlacementKeys.TOPOLOGY_FILE, file.toString());
    conf.set(
        CommonConfigurationKeysPublic.NET_TOPOLOGY_NODE_SWITCH_MAPPING_IMPL_KEY,
        FileTopologyMapping.class.getName());
    try (MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(conf, dir.toFile())
            .numDataNodes(2)
            .useConfiguredTopologyMappingClass(true)
            .build()) {
      cluster.waitActive();
      for (DatanodeInfo node : cluster.getFileSystem().getDataNodeStats()) {
        assertEquals("/r7/h3", node.getNetworkLocation());
      }
      write(cluster.getFileSystem(), "/f", 2, 1);
      assertNotNull(cluster.getFileSystem().getFileStatus(new org.apache.hadoop.fs.Path("/f")));
    }
  }
}
