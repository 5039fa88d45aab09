package io.hayloft.placement;

import static org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster.client;
import static org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster.newBlock;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster;
import org.apache.hadoop.net.Node;
import org.junit.jupiter.api.Test;

/** Round-robin, hybrid and random. */
class OtherLayoutsTest {
  private final FakeCluster cluster = new FakeCluster();
  private final Node client = client("/r1/c1", "10.9.0.1");

  private void hosts(int racks, int hosts, int nodes) {
    for (int r = 1; r <= racks; r++) {
      for (int h = 1; h <= hosts; h++) {
        for (int n = 0; n < nodes; n++) {
          cluster.add("/r" + r + "/h" + r + h, "10." + r + ".0." + h, 9866 + n);
        }
      }
    }
  }

  @Test
  void roundRobinGivesEachDomainAndNodeTheSame() {
    hosts(2, 3, 2);
    TestPolicy policy = TestPolicy.start(cluster, PlacementKeys.LAYOUT, "round-robin");
    Map<DatanodeDescriptor, Integer> count = new HashMap<>();
    for (int block = 0; block < 120; block++) {
      for (DatanodeStorageInfo target : newBlock(policy, "/file", 2, client)) {
        count.merge(target.getDatanodeDescriptor(), 1, Integer::sum);
      }
    }
    assertEquals(12, count.size());
    count.values().forEach(replicas -> assertEquals(20, replicas));
  }

  @Test
  void roundRobinGoesOnWhereTheFileIs() {
    hosts(2, 3, 1);
    TestPolicy policy = TestPolicy.start(cluster, PlacementKeys.LAYOUT, "round-robin");
    List<DatanodeDescriptor> a = new ArrayList<>();
    List<DatanodeDescriptor> b = new ArrayList<>();
    for (int block = 0; block < 6; block++) {
      a.add(policy.first("/a", client));
      b.add(policy.first("/b", client));
    }
    assertEquals(6, new HashSet<>(a).size());
    assertEquals(6, new HashSet<>(b).size());
    assertNotEquals(a.get(0), b.get(0), "files start at different domains");
  }

  @Test
  void hybridKeepsTheFirstAndTurnsTheOthers() {
    hosts(2, 3, 1);
    TestPolicy policy = TestPolicy.start(cluster, PlacementKeys.LAYOUT, "hybrid");
    DatanodeDescriptor first = policy.first("/file", client);
    Map<DatanodeDescriptor, Integer> others = new HashMap<>();
    for (int block = 0; block < 60; block++) {
      var targets = newBlock(policy, "/file", 3, client);
      assertSame(first, targets[0].getDatanodeDescriptor());
      assertEquals(2, DomainsAreKeptApartTest.racks(List.of(targets)).size());
      for (int i = 1; i < 3; i++) {
        others.merge(targets[i].getDatanodeDescriptor(), 1, Integer::sum);
      }
    }
    assertEquals(5, others.size());
    int most = others.values().stream().max(Integer::compare).orElse(0);
    int least = others.values().stream().min(Integer::compare).orElse(0);
    assertTrue(least >= 20 && most <= 28, "of 120: " + least + " to " + most);
    DatanodeDescriptor local = cluster.nodes.get(4);
    assertSame(local, newBlock(policy, "/local", 3, local)[0].getDatanodeDescriptor());
  }

  @Test
  void randomIsTheStockPolicy() {
    hosts(1, 2, 4);
    TestPolicy policy = TestPolicy.start(cluster, PlacementKeys.LAYOUT, "random");
    Set<DatanodeDescriptor> firsts = new HashSet<>();
    int shared = 0;
    for (int i = 0; i < 200; i++) {
      var targets = newBlock(policy, "/file", 3, client("/elsewhere/c", "10.9.0.1"));
      assertEquals(3, targets.length);
      firsts.add(targets[0].getDatanodeDescriptor());
      shared += 3 - DomainsAreKeptApartTest.locations(List.of(targets)).size();
    }
    assertEquals(8, firsts.size(), "no sticky node");
    assertTrue(shared > 0, "and no domains");
    DatanodeInfo[] nodes = {cluster.nodes.get(0), cluster.nodes.get(4)};
    assertTrue(policy.verifyBlockPlacement(nodes, 2).isPlacementPolicySatisfied());
  }
}
