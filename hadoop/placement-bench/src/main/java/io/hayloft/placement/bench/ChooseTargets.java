package io.hayloft.placement.bench;

import io.hayloft.placement.HayloftPlacementPolicy;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementPolicy;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster;
import org.apache.hadoop.net.Node;
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
 * Choosing three targets for a new block: 4,000 nodes on 1,000 hosts in 100 racks, 10,000 writers
 * on machines of the same racks that are no DataNodes. Stock and ours have the same nodes,
 * heartbeats and requests, and each sees {@code /rack} or {@code /rack/host} as the parameter says.
 * Calls are sampled: on a machine that others use too the median says more than the mean.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.SampleTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
@Fork(1)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
public class ChooseTargets {
  private static final int RACKS = 100;
  private static final int HOSTS_PER_RACK = 10;
  private static final int NODES_PER_HOST = 4;
  private static final int WRITERS = 10_000;

  /** The stock policy, or a layout of ours. */
  @Param({"stock", "split", "round-robin", "hybrid"})
  public String policy;

  /** Whether the topology names the host. */
  @Param({"/rack", "/rack/host"})
  public String topology;

  private BlockPlacementPolicy chooser;
  private final Node[] clients = new Node[WRITERS];
  private final String[] paths = new String[WRITERS];

  /** Builds the cluster and lets each writer have a block, so that the steady state is measured. */
  @Setup
  public void setup() {
    FakeCluster cluster = new FakeCluster();
    for (int r = 0; r < RACKS; r++) {
      for (int h = 0; h < HOSTS_PER_RACK; h++) {
        String location = "/r" + r + (topology.equals("/rack") ? "" : "/h" + r + "-" + h);
        for (int n = 0; n < NODES_PER_HOST; n++) {
          var node = cluster.add(location, "10." + r + "." + h + ".1", 9866 + 10 * n);
          cluster.heartbeat(node, 100_000 * FakeCluster.BLOCK, 4);
        }
      }
    }
    Configuration conf = new Configuration();
    Class<? extends BlockPlacementPolicy> type = DFSConfigKeys.DFS_BLOCK_REPLICATOR_CLASSNAME_DEFAULT;
    if (!policy.equals("stock")) {
      conf.set("hayloft.placement.layout", policy);
      type = HayloftPlacementPolicy.class;
    }
    chooser = cluster.start(ReflectionUtils.newInstance(type, conf), conf);
    for (int w = 0; w < WRITERS; w++) {
      String ip = "10.200." + w / 250 + "." + w % 250;
      String location = "/r" + w % RACKS + (topology.equals("/rack") ? "" : "/c" + w / RACKS);
      clients[w] = FakeCluster.client(location, ip);
      paths[w] = "/data/job-" + w / 100 + "/part-" + w;
      FakeCluster.newBlock(chooser, paths[w], 3, clients[w]);
    }
  }

  private DatanodeStorageInfo[] choose() {
    int writer = ThreadLocalRandom.current().nextInt(WRITERS);
    return FakeCluster.newBlock(chooser, paths[writer], 3, clients[writer]);
  }

  /** One handler thread. */
  @Benchmark
  public DatanodeStorageInfo[] oneThread() {
    return choose();
  }

  /** As many handler threads as a small NameNode has, on however many processors there are. */
  @Benchmark
  @org.openjdk.jmh.annotations.Threads(8)
  public DatanodeStorageInfo[] eightThreads() {
    return choose();
  }
}
