package io.hayloft.placement;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster;
import org.apache.hadoop.net.Node;

/** The policy with a clock in the test's hand. */
final class TestPolicy extends HayloftPlacementPolicy {
  long nowMs = 1_000_000;

  @Override
  long nowMs() {
    return nowMs;
  }

  /** A configuration of these keys and values. */
  static Configuration conf(String... pairs) {
    Configuration conf = new Configuration(false);
    // Tests call tick() themselves.
    conf.set(PlacementKeys.BALANCE_INTERVAL, "1h");
    for (int i = 0; i < pairs.length; i += 2) {
      conf.set(pairs[i], pairs[i + 1]);
    }
    return conf;
  }

  static TestPolicy start(FakeCluster cluster, String... pairs) {
    return cluster.start(new TestPolicy(), conf(pairs));
  }

  /** The node of the first replica of a new block. */
  DatanodeDescriptor first(String path, Node writer) {
    return FakeCluster.newBlock(this, path, 1, writer)[0].getDatanodeDescriptor();
  }
}
