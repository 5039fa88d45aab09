package io.hayloft.placement;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.tools.DFSck;
import org.apache.hadoop.util.ToolRunner;
import org.junit.jupiter.api.io.TempDir;

/**
 * What tests with a real NameNode share: its configuration with the plug-in, files, where their
 * blocks are.
 */
abstract class RealNameNode {
  static final int BLOCK = 4096;
  @TempDir Path dir;

  static Configuration conf() {
    Configuration conf = new Configuration();
    conf.set(DFSConfigKeys.DFS_BLOCK_REPLICATOR_CLASSNAME_KEY, HayloftPlacementPolicy.class.getName());
    conf.set(DFSConfigKeys.DFS_BLOCK_PLACEMENT_EC_CLASSNAME_KEY, HayloftEcPlacementPolicy.class.getName());
    conf.setLong(DFSConfigKeys.DFS_BLOCK_SIZE_KEY, BLOCK);
    conf.setLong(DFSConfigKeys.DFS_NAMENODE_MIN_BLOCK_SIZE_KEY, 512);
    conf.setInt(DFSConfigKeys.DFS_HEARTBEAT_INTERVAL_KEY, 1);
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_HEARTBEAT_RECHECK_INTERVAL_KEY, 500);
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_REDUNDANCY_INTERVAL_SECONDS_KEY, 1);
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_REPLICATION_WORK_MULTIPLIER_PER_ITERATION, 50);
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_REPLICATION_MAX_STREAMS_KEY, 50);
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_REPLICATION_STREAMS_HARD_LIMIT_KEY, 100);
    // A replica of a block takes as much disk as it has bytes, so that small capacities will do.
    conf.setLong(DFSConfigKeys.DFS_DATANODE_DU_RESERVED_KEY, 0);
    return conf;
  }

  static void write(DistributedFileSystem fs, String name, int replicas, int blocks)
      throws Exception {
    try (FSDataOutputStream out =
        fs.create(new org.apache.hadoop.fs.Path(name), true, 4096, (short) replicas, BLOCK)) {
      out.write(new byte[blocks * BLOCK]);
    }
  }

  /** Hosts of each block of a file. */
  static Map<LocatedBlock, Set<String>> hosts(DistributedFileSystem fs, String name)
      throws Exception {
    Map<LocatedBlock, Set<String>> hosts = new HashMap<>();
    for (LocatedBlock block :
        fs.getClient().getLocatedBlocks(name, 0, Long.MAX_VALUE).getLocatedBlocks()) {
      Set<String> of = new HashSet<>();
      Arrays.stream(block.getLocations()).map(DatanodeInfo::getNetworkLocation).forEach(of::add);
      hosts.put(block, of);
    }
    return hosts;
  }

  static String fsck(Configuration conf) throws Exception {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    ToolRunner.run(new DFSck(conf, new PrintStream(bytes, true, StandardCharsets.UTF_8)), new String[] {"/"});
    return bytes.toString(StandardCharsets.UTF_8);
  }

  interface Condition {
    boolean holds() throws Exception;
  }

  static void until(String what, Condition condition) throws Exception {
    long end = System.nanoTime() + 60_000_000_000L;
    while (!condition.holds()) {
      assertTrue(System.nanoTime() < end, "not within a minute: " + what);
      Thread.sleep(200);
    }
  }

  static boolean all(DistributedFileSystem fs, String name, int replicas, int hosts)
      throws Exception {
    for (var entry : hosts(fs, name).entrySet()) {
      if (entry.getKey().getLocations().length != replicas || entry.getValue().size() != hosts) {
        return false;
      }
    }
    return true;
  }
}
