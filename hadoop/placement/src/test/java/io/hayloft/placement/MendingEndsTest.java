package io.hayloft.placement;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.protocol.BlockStoragePolicy;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementStatus;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster;
import org.apache.hadoop.net.Node;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The three questions agree: what the check misses the choice can give, and the deletion of excess
 * replicas does not take it away again. Over random clusters with full nodes and several types.
 */
class MendingEndsTest {
  private static final int CLUSTERS = 600;

  private static FakeCluster cluster(Random random) {
    FakeCluster cluster = new FakeCluster();
    int racks = 1 + random.nextInt(3);
    for (int r = 0; r < racks; r++) {
      int hosts = 1 + random.nextInt(4);
      for (int h = 0; h < hosts; h++) {
        StorageType[][] kinds = {
          {StorageType.DISK}, {StorageType.ARCHIVE}, {StorageType.DISK, StorageType.ARCHIVE}
        };
        StorageType[] types = kinds[random.nextInt(4) % 3];
        for (int n = random.nextInt(3); n >= 0; n--) {
          cluster.add("/r" + r + "/h" + h, "10." + r + "." + h + ".1", 9866 + 10 * n, types);
        }
      }
    }
    return cluster;
  }

  @ParameterizedTest
  @ValueSource(strings = {"HOT", "COLD", "WARM"})
  void eachCopyIsMadeOnce(String name) {
    BlockStoragePolicy storage = FakeCluster.policy(name);
    Seeds.run(
        CLUSTERS,
        random -> {
          FakeCluster cluster = cluster(random);
          TestPolicy policy = TestPolicy.start(cluster, "dfs.blocksize", "" + FakeCluster.BLOCK);
          int replicas = 2 + random.nextInt(3);
          List<DatanodeStorageInfo> block =
              new ArrayList<>(
                  Arrays.asList(
                      FakeCluster.newBlock(
                          policy, "/f", replicas, FakeCluster.client("/r0/c", "10.9.9.9"),
                          new HashSet<>(), null, storage, null)));
          if (block.isEmpty()) {
            return;
          }
          // Later some nodes are full.
          cluster.nodes.forEach(
              node -> {
                if (random.nextInt(3) == 0) {
                  cluster.heartbeat(node, 0, 0);
                }
              });
          policy.view().outdated();
          policy.tick();
          int copies = 0;
          for (int round = 0; round < 40; round++) {
            int made = round(policy, storage, block, replicas);
            if (made > 0) {
              copies += made;
            }
            policy.nowMs += 3_000;
          }
          assertTrue(copies <= 2 * replicas, copies + " copies of " + block);
          if (block.size() >= replicas) {
            assertEquals(0, round(policy, storage, block, replicas), "at rest");
            assertTrue(
                verify(policy, block, replicas).isPlacementPolicySatisfied(),
                () -> "decommissioning would wait for " + block);
          }
        });
  }

  /** What the NameNode does with a block in one round; returns how many copies it made. */
  private static int round(
      TestPolicy policy,
      BlockStoragePolicy storage,
      List<DatanodeStorageInfo> block,
      int replicas) {
    BlockPlacementStatus before = verify(policy, block, replicas);
    boolean enough = block.size() >= replicas;
    if (enough && before.isPlacementPolicySatisfied()) {
      return 0;
    }
    int more = enough ? before.getAdditionalReplicasRequired() : replicas - block.size();
    Set<Node> excluded = new HashSet<>();
    block.forEach(replica -> excluded.add(replica.getDatanodeDescriptor()));
    List<DatanodeStorageInfo> targets =
        Arrays.asList(
            policy.chooseTarget(
                "/f", more, block.get(0).getDatanodeDescriptor(), List.copyOf(block), false,
                excluded, FakeCluster.BLOCK, storage, null));
    List<DatanodeStorageInfo> all = new ArrayList<>(block);
    all.addAll(targets);
    if (enough) {
      BlockPlacementStatus after = verify(policy, all, replicas);
      if (!after.isPlacementPolicySatisfied()
          && after.getAdditionalReplicasRequired() >= before.getAdditionalReplicasRequired()) {
        return 0;
      }
    }
    List<StorageType> types = all.stream().map(DatanodeStorageInfo::getStorageType).toList();
    List<StorageType> excess =
        new ArrayList<>(storage.chooseExcess((short) replicas, types));
    if (all.size() > replicas) {
      all.removeAll(
          policy.chooseReplicasToDelete(
              List.copyOf(all), new ArrayList<>(all), replicas, excess, null, null));
    }
    block.clear();
    block.addAll(all);
    return targets.size();
  }

  private static BlockPlacementStatus verify(
      TestPolicy policy, List<DatanodeStorageInfo> block, int replicas) {
    DatanodeInfo[] nodes =
        block.stream().map(DatanodeStorageInfo::getDatanodeDescriptor).toArray(DatanodeInfo[]::new);
    return policy.verifyBlockPlacement(nodes, replicas);
  }
}
