package io.hayloft.placement.bench;

import io.hayloft.placement.HayloftPlacementPolicy;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementPolicy;
import org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementStatus;
import org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster;
import org.apache.hadoop.util.ReflectionUtils;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

/**
 * The question that fsck and a block report ask of each block under the NameNode's lock: is it
 * placed well. 4,000 nodes on 1,000 hosts in 100 racks. A nanosecond a block is a millisecond for a
 * million blocks.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Fork(1)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
public class VerifyBlocks {
  private static final int RACKS = 100;
  private static final int HOSTS_PER_RACK = 10;
  private static final int NODES_PER_HOST = 4;
  private static final int BLOCKS = 1 << 16;

  /** The stock policy, or a layout of ours. */
  @Param({"stock", "split"})
  public String policy;

  /** Replicas in three domains; two of three in one; the same where no other has room. */
  @Param({"spread", "sharing", "sharing-full"})
  public String blocks;

  private BlockPlacementPolicy verifier;
  private final DatanodeInfo[][] nodes = new DatanodeInfo[BLOCKS][3];
  private int next;

  /** Builds the cluster and the blocks. */
  @Setup
  public void setup() {
    FakeCluster cluster = new FakeCluster();
    for (int r = 0; r < RACKS; r++) {
      for (int h = 0; h < HOSTS_PER_RACK; h++) {
        for (int n = 0; n < NODES_PER_HOST; n++) {
          var node = cluster.add("/r" + r, "10." + r + "." + h + ".1", 9866 + 10 * n);
          long free = blocks.equals("sharing-full") ? 0 : 100_000 * FakeCluster.BLOCK;
          cluster.heartbeat(node, free, 4);
        }
      }
    }
    Configuration conf = new Configuration();
    Class<? extends BlockPlacementPolicy> type =
        DFSConfigKeys.DFS_BLOCK_REPLICATOR_CLASSNAME_DEFAULT;
    if (!policy.equals("stock")) {
      type = HayloftPlacementPolicy.class;
    }
    verifier = cluster.start(ReflectionUtils.newInstance(type, conf), conf);
    ThreadLocalRandom random = ThreadLocalRandom.current();
    int perRack = HOSTS_PER_RACK * NODES_PER_HOST;
    for (DatanodeInfo[] of : nodes) {
      int first = random.nextInt(RACKS / 2) * perRack;
      int second = (RACKS / 2 + random.nextInt(RACKS / 2)) * perRack;
      of[0] = cluster.nodes.get(first);
      of[1] = cluster.nodes.get(second);
      // Another node of the same host, or one of another host.
      of[2] = cluster.nodes.get(second + (blocks.equals("spread") ? NODES_PER_HOST : 1));
    }
  }

  /** One block. */
  @Benchmark
  public BlockPlacementStatus verify() {
    next = (next + 1) & (BLOCKS - 1);
    return verifier.verifyBlockPlacement(nodes[next], 3);
  }
}
