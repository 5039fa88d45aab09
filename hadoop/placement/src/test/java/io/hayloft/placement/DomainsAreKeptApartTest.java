package io.hayloft.placement;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The rule, over random clusters: never two replicas in one domain while another could be had. */
class DomainsAreKeptApartTest {
  private static final int CLUSTERS = 400;

  /** A random cluster of racks, hosts in them, and nodes on those. */
  static FakeCluster cluster(Random random) {
    FakeCluster cluster = new FakeCluster();
    int racks = 1 + random.nextInt(4);
    for (int r = 0; r < racks; r++) {
      int hosts = 1 + random.nextInt(5);
      for (int h = 0; h < hosts; h++) {
        int nodes = 1 + random.nextInt(4);
        for (int n = 0; n < nodes; n++) {
          cluster.add("/r" + r + "/h" + h, "10." + r + "." + h + ".1", 9866 + 10 * n);
        }
      }
    }
    return cluster;
  }

  static Set<String> locations(Iterable<? extends DatanodeStorageInfo> targets) {
    Set<String> set = new HashSet<>();
    targets.forEach(t -> set.add(t.getDatanodeDescriptor().getNetworkLocation()));
    return set;
  }

  static int hosts(FakeCluster cluster) {
    Set<String> set = new HashSet<>();
    cluster.nodes.forEach(node -> set.add(node.getNetworkLocation()));
    return set.size();
  }

  static Set<String> racks(Iterable<? extends DatanodeStorageInfo> targets) {
    Set<String> set = new HashSet<>();
    targets.forEach(
        t -> {
          String location = t.getDatanodeDescriptor().getNetworkLocation();
          set.add(location.substring(0, location.lastIndexOf('/')));
        });
    return set;
  }

  @ParameterizedTest
  @ValueSource(strings = {"split", "split same-rack", "round-robin", "hybrid"})
  void newBlocksAndCopies(String layout) {
    Seeds.run(
        CLUSTERS,
        random -> {
          FakeCluster cluster = cluster(random);
          Configuration conf = new Configuration(false);
          conf.set(PlacementKeys.LAYOUT, layout.split(" ")[0]);
          if (layout.endsWith("same-rack")) {
            conf.set(PlacementKeys.SECOND_REPLICA, "same-rack");
          }
          HayloftPlacementPolicy policy = cluster.start(new HayloftPlacementPolicy(), conf);
          for (int block = 0; block < 6; block++) {
            int replicas = 1 + random.nextInt(5);
            var writer =
                random.nextBoolean()
                    ? FakeCluster.client("/r" + random.nextInt(5) + "/c", "10.9.9.9")
                    : cluster.nodes.get(random.nextInt(cluster.nodes.size()));
            List<DatanodeStorageInfo> targets =
                new ArrayList<>(
                    Arrays.asList(
                        FakeCluster.newBlock(policy, "/f" + random.nextInt(3), replicas, writer)));
            check(cluster, policy, targets, replicas);
            // One is lost, and a copy is made.
            if (targets.size() > 1) {
              targets.remove(random.nextInt(targets.size()));
              targets.addAll(Arrays.asList(FakeCluster.again(policy, 1, targets)));
              check(cluster, policy, targets, Math.min(replicas, cluster.nodes.size()));
            }
          }
        });
  }

  private static void check(
      FakeCluster cluster, HayloftPlacementPolicy policy, List<DatanodeStorageInfo> targets, int replicas) {
    int wanted = Math.min(replicas, cluster.nodes.size());
    assertEquals(wanted, new HashSet<>(targets).size(), "number of replicas");
    assertEquals(
        Math.min(wanted, hosts(cluster)), locations(targets).size(), () -> "domains of " + targets);
    DatanodeInfo[] nodes =
        targets.stream().map(DatanodeStorageInfo::getDatanodeDescriptor).toArray(DatanodeInfo[]::new);
    var verdict = policy.verifyBlockPlacement(nodes, replicas);
    assertTrue(verdict.isPlacementPolicySatisfied(), () -> verdict + " of " + targets);
  }

  @ParameterizedTest
  @ValueSource(ints = {5, 9, 14})
  void groups(int width) {
    Seeds.run(
        CLUSTERS,
        random -> {
          FakeCluster cluster = cluster(random);
          HayloftEcPlacementPolicy policy =
              cluster.start(new HayloftEcPlacementPolicy(), new Configuration(false));
          List<DatanodeStorageInfo> targets =
              Arrays.asList(
                  FakeCluster.newBlock(
                      policy, "/ec", width, FakeCluster.client("/r0/c", "10.9.9.9")));
          int wanted = Math.min(width, cluster.nodes.size());
          assertEquals(wanted, new HashSet<>(targets).size());
          assertEquals(Math.min(wanted, hosts(cluster)), locations(targets).size());
          DatanodeInfo[] nodes =
              targets.stream()
                  .map(DatanodeStorageInfo::getDatanodeDescriptor)
                  .toArray(DatanodeInfo[]::new);
          assertTrue(policy.verifyBlockPlacement(nodes, width).isPlacementPolicySatisfied());
        });
  }

  /**
   * Excess replicas go so that as few as possible share a domain, and no rack is lost that need not
   * be.
   */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void excessReplicas(boolean striped) {
    Seeds.run(
        CLUSTERS,
        random -> {
          FakeCluster cluster = cluster(random);
          HayloftPlacementPolicy policy =
              cluster.start(
                  striped ? new HayloftEcPlacementPolicy() : new HayloftPlacementPolicy(),
                  new Configuration(false));
          List<DatanodeDescriptor> shuffled = new ArrayList<>(cluster.nodes);
          java.util.Collections.shuffle(shuffled, random);
          List<DatanodeStorageInfo> replicas = new ArrayList<>();
          for (DatanodeDescriptor node : shuffled.subList(0, Math.min(6, shuffled.size()))) {
            replicas.add(node.getStorageInfos()[0]);
          }
          int keep = 1 + random.nextInt(replicas.size());
          List<org.apache.hadoop.fs.StorageType> excess = new ArrayList<>();
          for (int i = keep; i < replicas.size(); i++) {
            excess.add(org.apache.hadoop.fs.StorageType.DISK);
          }
          List<DatanodeStorageInfo> before = List.copyOf(replicas);
          List<DatanodeStorageInfo> gone =
              policy.chooseReplicasToDelete(before, new ArrayList<>(replicas), keep, excess, null, null);
          assertEquals(before.size() - keep, gone.size());
          replicas.removeAll(gone);
          assertEquals(
              Math.min(keep, locations(before).size()),
              locations(replicas).size(),
              () -> "kept " + replicas + " of " + before);
          if (!striped && keep > 1) {
            assertTrue(
                racks(replicas).size() >= Math.min(2, racks(before).size()),
                () -> "racks: kept " + replicas + " of " + before);
          }
        });
  }

  /** A move that a tool is allowed leaves the block as well placed as it was. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void moves(boolean striped) {
    Seeds.run(
        CLUSTERS,
        random -> {
          FakeCluster cluster = cluster(random);
          HayloftPlacementPolicy policy =
              FakeCluster.startInTool(
                  striped ? new HayloftEcPlacementPolicy() : new HayloftPlacementPolicy(),
                  new Configuration(false),
                  cluster.topology);
          List<DatanodeInfo> shuffled = new ArrayList<>(cluster.nodes);
          java.util.Collections.shuffle(shuffled, random);
          int replicas = Math.min(1 + random.nextInt(4), shuffled.size() - 1);
          if (replicas < 1) {
            return;
          }
          List<DatanodeInfo> with = new ArrayList<>(shuffled.subList(0, replicas + 1));
          DatanodeInfo target = with.get(replicas);
          DatanodeInfo source = with.get(random.nextInt(replicas));
          List<DatanodeInfo> before = with.subList(0, replicas);
          List<DatanodeInfo> after = new ArrayList<>(with);
          after.remove(source);
          boolean allowed = policy.isMovable(with, source, target);
          int was = distinct(before);
          int is = distinct(after);
          if (allowed) {
            assertTrue(is >= was, () -> "moved " + source + " to " + target + " of " + before);
          }
          if (source.getNetworkLocation().equals(target.getNetworkLocation())) {
            assertTrue(allowed, "within one host nothing changes");
          }
          if (is < was) {
            assertTrue(!allowed);
          }
        });
  }

  private static int distinct(List<DatanodeInfo> nodes) {
    return (int) nodes.stream().map(DatanodeInfo::getNetworkLocation).distinct().count();
  }
}
