package io.hayloft.placement;

import static org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster.BLOCK;
import static org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster.client;
import static org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster.hot;
import static org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster.newBlock;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.AddBlockFlag;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster;
import org.apache.hadoop.net.Node;
import org.junit.jupiter.api.Test;

/**
 * Storage policies, favoured nodes, flags, staleness and load mean what they mean to the stock
 * policy.
 */
class StockMeaningTest {
  private final FakeCluster cluster = new FakeCluster();
  private final Node client = client("/r1/c1", "10.9.0.1");

  private static List<StorageType> types(DatanodeStorageInfo[] targets) {
    return Arrays.stream(targets).map(DatanodeStorageInfo::getStorageType).sorted().toList();
  }

  private void hosts(int racks, int perRack, StorageType... types) {
    for (int r = 1; r <= racks; r++) {
      for (int h = 1; h <= perRack; h++) {
        cluster.add("/r" + r + "/h" + r + h, "10." + r + ".0." + h, 9866, types);
      }
    }
  }

  private DatanodeStorageInfo[] withPolicy(TestPolicy policy, String name, int replicas) {
    return newBlock(
        policy, "/f", replicas, client, new HashSet<>(), null, FakeCluster.policy(name), null);
  }

  @Test
  void storagePoliciesGetTheirTypes() {
    hosts(2, 3, StorageType.DISK, StorageType.SSD, StorageType.ARCHIVE);
    TestPolicy policy = TestPolicy.start(cluster);
    StorageType disk = StorageType.DISK;
    StorageType ssd = StorageType.SSD;
    assertEquals(List.of(disk, disk, disk), types(withPolicy(policy, "HOT", 3)));
    assertEquals(List.of(ssd, ssd, ssd), types(withPolicy(policy, "ALL_SSD", 3)));
    assertEquals(List.of(ssd, disk, disk).stream().sorted().toList(), types(withPolicy(policy, "ONE_SSD", 3)));
    assertEquals(
        List.of(StorageType.ARCHIVE, StorageType.ARCHIVE, StorageType.ARCHIVE),
        types(withPolicy(policy, "COLD", 3)));
  }

  @Test
  void aPolicyFallsBackWhenItsTypeIsNowhere() {
    hosts(2, 3, StorageType.DISK);
    TestPolicy policy = TestPolicy.start(cluster);
    assertEquals(
        List.of(StorageType.DISK, StorageType.DISK, StorageType.DISK),
        types(withPolicy(policy, "ALL_SSD", 3)));
    assertEquals(0, withPolicy(policy, "COLD", 3).length, "COLD has no fallback for new blocks");
  }

  @Test
  void aFallbackTypeInANewDomainComesBeforeASharedDomain() {
    for (int n = 0; n < 3; n++) {
      cluster.add("/r1/fast", "10.1.0.1", 9866 + n, StorageType.SSD);
    }
    cluster.add("/r1/h2", "10.1.0.2", 9866, StorageType.DISK);
    cluster.add("/r2/h3", "10.2.0.3", 9866, StorageType.DISK);
    TestPolicy policy = TestPolicy.start(cluster);
    var targets = withPolicy(policy, "ALL_SSD", 3);
    assertEquals(3, DomainsAreKeptApartTest.locations(List.of(targets)).size());
    assertEquals(1, types(targets).stream().filter(t -> t == StorageType.SSD).count());
  }

  @Test
  void aStaleNodeIsTakenBeforeADomainIsShared() {
    cluster.avoidStale = true;
    for (int h = 1; h <= 3; h++) {
      for (int n = 0; n < 2; n++) {
        cluster.add("/r1/h" + h, "10.1.0." + h, 9866 + n);
      }
    }
    cluster.silent(cluster.nodes.get(4), 40_000);
    cluster.silent(cluster.nodes.get(5), 40_000);
    TestPolicy policy = TestPolicy.start(cluster);
    var targets = List.of(newBlock(policy, "/f", 3, client));
    assertEquals(3, DomainsAreKeptApartTest.locations(targets).size());
  }

  @Test
  void aBusyNodeIsTakenBeforeADomainIsShared() {
    for (int h = 1; h <= 3; h++) {
      for (int n = 0; n < 2; n++) {
        cluster.add("/r1/h" + h, "10.1.0." + h, 9866 + n);
      }
    }
    cluster.heartbeat(cluster.nodes.get(4), 100 * BLOCK, 50);
    cluster.heartbeat(cluster.nodes.get(5), 100 * BLOCK, 50);
    TestPolicy policy = TestPolicy.start(cluster);
    var targets = List.of(newBlock(policy, "/f", 3, client));
    assertEquals(3, DomainsAreKeptApartTest.locations(targets).size());
    assertEquals(1, policy.metrics().overloadedTaken.sum());
    for (int i = 0; i < 20; i++) {
      for (var target : newBlock(policy, "/g" + i, 2, client)) {
        assertNotEquals("/r1/h3", target.getDatanodeDescriptor().getNetworkLocation());
      }
    }
  }

  @Test
  void withOneDomainOnlyReplicasShareIt() {
    for (int n = 0; n < 4; n++) {
      cluster.add("/r1/h1", "10.1.0.1", 9866 + n);
    }
    TestPolicy policy = TestPolicy.start(cluster);
    assertEquals(3, new HashSet<>(List.of(newBlock(policy, "/f", 3, client))).size());
    assertEquals(2, policy.metrics().sharedDomain.sum());
  }

  @Test
  void favouredNodesAreTaken() {
    hosts(2, 4);
    TestPolicy policy = TestPolicy.start(cluster);
    List<DatanodeDescriptor> favored = List.of(cluster.nodes.get(1), cluster.nodes.get(6));
    for (int i = 0; i < 30; i++) {
      var targets = newBlock(policy, "/f" + i, 3, client, new HashSet<>(), favored, hot(), null);
      List<DatanodeDescriptor> nodes =
          Arrays.stream(targets).map(DatanodeStorageInfo::getDatanodeDescriptor).toList();
      assertTrue(nodes.containsAll(favored), nodes.toString());
      assertEquals(3, DomainsAreKeptApartTest.locations(List.of(targets)).size());
    }
  }

  @Test
  void favouredNodesOfOneDomainDoNotBreakTheRule() {
    for (int h = 1; h <= 3; h++) {
      for (int n = 0; n < 3; n++) {
        cluster.add("/r1/h" + h, "10.1.0." + h, 9866 + n);
      }
    }
    TestPolicy policy = TestPolicy.start(cluster);
    for (int i = 0; i < 30; i++) {
      var targets =
          List.of(
              newBlock(
                  policy, "/f" + i, 3, client, new HashSet<>(), cluster.nodes.subList(0, 3), hot(), null));
      assertEquals(3, DomainsAreKeptApartTest.locations(targets).size());
      assertTrue(
          targets.stream().anyMatch(t -> t.getDatanodeDescriptor() == cluster.nodes.get(0)),
          "one favoured node at least");
    }
  }

  @Test
  void favouredNodesShareTheOnlyDomain() {
    for (int n = 0; n < 4; n++) {
      cluster.add("/r1/h1", "10.1.0.1", 9866 + n);
    }
    TestPolicy policy = TestPolicy.start(cluster);
    List<DatanodeDescriptor> favored = cluster.nodes.subList(1, 3);
    var targets = newBlock(policy, "/f", 3, client, new HashSet<>(), favored, hot(), null);
    List<DatanodeDescriptor> nodes =
        Arrays.stream(targets).map(DatanodeStorageInfo::getDatanodeDescriptor).toList();
    assertEquals(3, nodes.size());
    assertTrue(nodes.containsAll(favored));
  }

  private DatanodeStorageInfo[] flagged(TestPolicy policy, String path, Node writer, AddBlockFlag flag) {
    return newBlock(policy, path, 1, writer, new HashSet<>(), null, hot(), EnumSet.of(flag));
  }

  @Test
  void noLocalWriteKeepsOffTheWritersNode() {
    hosts(2, 4);
    TestPolicy policy = TestPolicy.start(cluster);
    DatanodeDescriptor writer = cluster.nodes.get(0);
    for (int i = 0; i < 20; i++) {
      var target = flagged(policy, "/f" + i, writer, AddBlockFlag.NO_LOCAL_WRITE)[0];
      assertNotEquals(writer, target.getDatanodeDescriptor());
    }
  }

  @Test
  void noLocalRackKeepsOffTheWritersRack() {
    hosts(3, 3);
    TestPolicy policy = TestPolicy.start(cluster);
    for (Node writer : List.of(cluster.nodes.get(0), client)) {
      for (int i = 0; i < 20; i++) {
        String location =
            flagged(policy, "/f" + writer + i, writer, AddBlockFlag.NO_LOCAL_RACK)[0]
                .getDatanodeDescriptor()
                .getNetworkLocation();
        assertTrue(!location.startsWith("/r1/"), location);
      }
    }
  }

  @Test
  void ignoreClientLocalityMeansAnyNodeAndNoAssignment() {
    hosts(2, 4);
    TestPolicy policy = TestPolicy.start(cluster);
    Set<DatanodeDescriptor> seen = new HashSet<>();
    for (int i = 0; i < 200; i++) {
      seen.add(
          flagged(policy, "/f", null, AddBlockFlag.IGNORE_CLIENT_LOCALITY)[0].getDatanodeDescriptor());
    }
    assertEquals(8, seen.size());
    assertEquals(0, policy.assignments().size());
  }

  @Test
  void preferLocalNodeCanBeSwitchedOff() {
    hosts(2, 4);
    TestPolicy policy =
        TestPolicy.start(
            cluster, "dfs.namenode.block-placement-policy.default.prefer-local-node", "false");
    Set<DatanodeDescriptor> seen = new HashSet<>();
    for (int i = 0; i < 20; i++) {
      seen.add(policy.first("/f" + i, cluster.nodes.get(0)));
    }
    assertEquals(4, seen.size(), "sticky nodes of the writer's rack");
  }

  @Test
  void thePipelineStartsAtTheWriter() {
    hosts(2, 4);
    TestPolicy policy = TestPolicy.start(cluster);
    DatanodeDescriptor local = cluster.nodes.get(2);
    assertSame(local, newBlock(policy, "/f", 3, local)[0].getDatanodeDescriptor());
    DatanodeDescriptor sticky = policy.first("/g", client);
    assertSame(sticky, newBlock(policy, "/g", 3, client)[0].getDatanodeDescriptor());
  }

  @Test
  void excludedNodesAreNeverTaken() {
    hosts(2, 4);
    TestPolicy policy = TestPolicy.start(cluster);
    Set<Node> excluded = new HashSet<>(cluster.nodes.subList(0, 3));
    for (int i = 0; i < 50; i++) {
      for (var target :
          newBlock(policy, "/f" + i, 3, client, new HashSet<>(excluded), null, hot(), null)) {
        assertTrue(!excluded.contains(target.getDatanodeDescriptor()));
      }
    }
  }

  @Test
  void nothingIsChosenWhereNothingFits() {
    hosts(2, 2);
    cluster.nodes.forEach(node -> cluster.heartbeat(node, 0, 0));
    TestPolicy policy = TestPolicy.start(cluster);
    assertEquals(0, newBlock(policy, "/f", 3, client).length);
    assertEquals(1, policy.metrics().tooFew.sum());
  }
}
