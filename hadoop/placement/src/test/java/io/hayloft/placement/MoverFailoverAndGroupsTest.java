package io.hayloft.placement;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import javax.management.ObjectName;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.server.mover.Mover;
import org.apache.hadoop.hdfs.server.namenode.ha.HATestUtil;
import org.apache.hadoop.util.ToolRunner;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A real NameNode with the plug-in under the Mover, a failover, and erasure-coded groups. */
class MoverFailoverAndGroupsTest extends RealNameNode {
  private static final String CODE = "RS-3-2-1024k";
  private static final int CELL = 1 << 20;

  @Test
  @Timeout(300)
  void theMoverKeepsTheRule() throws Exception {
    Configuration conf = conf();
    conf.setLong(DFSConfigKeys.DFS_BALANCER_GETBLOCKS_MIN_BLOCK_SIZE_KEY, 1);
    // One rack, so that only the rule about domains is left; a domain is known by its nodes' ports.
    java.nio.file.Path file = Files.writeString(dir.resolve("domains"), "");
    conf.set(PlacementKeys.DOMAINS, "file");
    conf.set(PlacementKeys.DOMAINS_FILE, file.toString());
    conf.set(PlacementKeys.BALANCE_INTERVAL, "100ms");
    // Three domains with a disk node each, and three with two archive nodes each.
    StorageType[][] types = new StorageType[9][];
    for (int node = 0; node < types.length; node++) {
      types[node] = new StorageType[] {node < 3 ? StorageType.DISK : StorageType.ARCHIVE};
    }
    try (MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(conf, dir.toFile())
            .numDataNodes(types.length)
            .storagesPerDatanode(1)
            .storageTypes(types)
            .build()) {
      StringBuilder lines = new StringBuilder();
      Map<String, String> domains = new HashMap<>();
      for (int node = 0; node < types.length; node++) {
        String address = cluster.getDataNodes().get(node).getDatanodeId().getXferAddr();
        domains.put(address, node < 3 ? "disk" + node : "archive" + node % 3);
        lines.append(address).append(' ').append(domains.get(address)).append('\n');
      }
      Files.writeString(file, lines);
      var bean = new ObjectName(PlacementMBean.NAME);
      var beans = ManagementFactory.getPlatformMBeanServer();
      until("the domains are read", () -> beans.getAttribute(bean, "Domains").equals(6));
      DistributedFileSystem fs = cluster.getFileSystem();
      for (int i = 0; i < 10; i++) {
        write(fs, "/cold/" + i, 3, 3);
      }
      fs.setStoragePolicy(new Path("/cold"), "COLD");
      assertEquals(0, ToolRunner.run(conf, new Mover.Cli(), new String[] {"-p", "/cold"}));
      for (int i = 0; i < 10; i++) {
        String name = "/cold/" + i;
        until("all of " + name + " is archived", () -> archived(fs, name));
        for (LocatedBlock block : hosts(fs, name).keySet()) {
          var of = Arrays.stream(block.getLocations()).map(n -> domains.get(n.getXferAddr()));
          assertEquals(3, of.distinct().count(), block + "");
        }
      }
    }
  }

  private static boolean archived(DistributedFileSystem fs, String name) throws Exception {
    for (LocatedBlock block : fs.getClient().getLocatedBlocks(name, 0, Long.MAX_VALUE).getLocatedBlocks()) {
      if (block.getLocations().length != 3
          || !Arrays.stream(block.getStorageTypes()).allMatch(StorageType.ARCHIVE::equals)) {
        return false;
      }
    }
    return true;
  }

  @Test
  @Timeout(300)
  void aWriterGoesOnWithinTheRuleAfterAFailover() throws Exception {
    Configuration conf = conf();
    conf.setInt(DFSConfigKeys.DFS_HA_TAILEDITS_PERIOD_KEY, 1);
    String[] locations = {"/r0/h0", "/r0/h0", "/r0/h1", "/r0/h1", "/r1/h2", "/r1/h2"};
    try (MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(conf, dir.toFile())
            .nnTopology(MiniDFSNNTopology.simpleHATopology())
            .numDataNodes(locations.length)
            .racks(locations)
            .storagesPerDatanode(1)
            .build()) {
      cluster.waitActive();
      cluster.transitionToActive(0);
      DistributedFileSystem fs = HATestUtil.configureFailoverFs(cluster, conf);
      byte[] blocks = new byte[8 * BLOCK];
      try (FSDataOutputStream out = fs.create(new Path("/f"), true, 4096, (short) 3, BLOCK)) {
        out.write(blocks);
        out.hflush();
        cluster.transitionToStandby(0);
        cluster.transitionToActive(1);
        out.write(blocks);
      }
      until("the new NameNode knows all replicas", () -> all(fs, "/f", 3, 3));
      assertEquals(16, hosts(fs, "/f").size());
      // What the new NameNode copies is within the rule as well.
      cluster.stopDataNode(0);
      until("all blocks have three hosts again", () -> all(fs, "/f", 3, 3));
    }
  }

  @Test
  @Timeout(300)
  void blocksOfAGroupHaveDomainsOfTheirOwn() throws Exception {
    Configuration conf = conf();
    String[] locations = new String[12];
    for (int node = 0; node < locations.length; node++) {
      locations[node] = "/r" + node / 6 + "/h" + node / 2;
    }
    try (MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(conf, dir.toFile())
            .numDataNodes(locations.length)
            .racks(locations)
            .storagesPerDatanode(1)
            .build()) {
      DistributedFileSystem fs = cluster.getFileSystem();
      fs.enableErasureCodingPolicy(CODE);
      fs.mkdirs(new Path("/ec"));
      fs.setErasureCodingPolicy(new Path("/ec"), CODE);
      for (int file = 0; file < 6; file++) {
        try (FSDataOutputStream out = fs.create(new Path("/ec/" + file), true, 4096, (short) 1, CELL)) {
          out.write(new byte[3 * CELL]);
        }
      }
      until("every block of a group has a host of its own", () -> spread(fs, 5));
      assertTrue(fsck(conf).contains("HEALTHY"), () -> "fsck agrees");
      // A host with two nodes is lost: five hosts are left for five blocks.
      for (int node = 0; node < 2; node++) {
        cluster.stopDataNode(0);
      }
      cluster.setDataNodesDead();
      until("the groups are whole on the other hosts", () -> spread(fs, 5));
    }
  }

  /** Whether every group has five blocks in so many hosts. */
  private static boolean spread(DistributedFileSystem fs, int wanted) throws Exception {
    for (int file = 0; file < 6; file++) {
      for (LocatedBlock group :
          fs.getClient().getLocatedBlocks("/ec/" + file, 0, Long.MAX_VALUE).getLocatedBlocks()) {
        Set<String> hosts = new HashSet<>();
        Arrays.stream(group.getLocations()).map(DatanodeInfo::getNetworkLocation).forEach(hosts::add);
        if (group.getLocations().length != 5 || hosts.size() != wanted) {
          return false;
        }
      }
    }
    return true;
  }
}
