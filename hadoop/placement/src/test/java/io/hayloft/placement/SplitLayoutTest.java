package io.hayloft.placement;

import static org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster.BLOCK;
import static org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster.client;
import static org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster.newBlock;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.hayloft.placement.PlacementMetrics.Left;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeManager;
import org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster;
import org.apache.hadoop.ipc.FakeCaller;
import org.apache.hadoop.net.Node;
import org.junit.jupiter.api.Test;

/** Sticky nodes: who gets which, how long it lasts, and what ends it. */
class SplitLayoutTest {
  private final FakeCluster cluster = new FakeCluster();

  /** Two racks of hosts with one node each. */
  private void hosts(int perRack) {
    for (int r = 1; r <= 2; r++) {
      for (int h = 1; h <= perRack; h++) {
        cluster.add("/r" + r + "/h" + r + h, "10." + r + ".0." + h, 9866);
      }
    }
  }

  private static Map<DatanodeDescriptor, Integer> firsts(TestPolicy policy, int writers, Node[] from) {
    Map<DatanodeDescriptor, Integer> count = new HashMap<>();
    for (int w = 0; w < writers; w++) {
      count.merge(policy.first("/w" + w, from[w % from.length]), 1, Integer::sum);
    }
    return count;
  }

  @Test
  void aWriterKeepsItsNode() {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster);
    Node client = client("/r1/c1", "10.9.0.1");
    DatanodeDescriptor first = policy.first("/file", client);
    for (int block = 0; block < 50; block++) {
      assertSame(first, policy.first("/file", client));
    }
    assertEquals(50, policy.metrics().sticky.sum());
    assertEquals(1, policy.metrics().assigned.sum());
  }

  @Test
  void nodesOfTheClientsRackComeFirstAndEachGetsItsShare() {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster);
    Map<DatanodeDescriptor, Integer> count =
        firsts(policy, 12, new Node[] {client("/r1/c1", "10.9.0.1")});
    assertEquals(4, count.size());
    count.forEach(
        (node, writers) -> {
          assertTrue(node.getNetworkLocation().startsWith("/r1/"), node.getNetworkLocation());
          assertEquals(3, writers);
        });
  }

  @Test
  void withoutANodeInTheClientsRackTheLeastLoadedAreTaken() {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster);
    Map<DatanodeDescriptor, Integer> count =
        firsts(policy, 8, new Node[] {client("/compute/c1", "10.9.0.1")});
    assertEquals(8, count.size());
  }

  @Test
  void secondariesGoWhereFewStreamsAre() {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster);
    Map<DatanodeDescriptor, Integer> streams = new HashMap<>();
    for (int w = 0; w < 8; w++) {
      Node client = client("/r" + (1 + w % 2) + "/c", "10.9.0." + w);
      for (var target : newBlock(policy, "/w" + w, 2, client)) {
        streams.merge(target.getDatanodeDescriptor(), 1, Integer::sum);
      }
    }
    assertEquals(8, streams.size());
    assertTrue(streams.values().stream().allMatch(n -> n <= 3), streams.toString());
  }

  @Test
  void aLocalNodeIsPreferred() {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster);
    DatanodeDescriptor local = cluster.nodes.get(3);
    assertSame(local, policy.first("/file", local));
    assertEquals(0, policy.assignments().size());
  }

  @Test
  void theSecondReplicaIsWhereTheKeySays() {
    hosts(4);
    for (String where : List.of("other-rack", "same-rack")) {
      TestPolicy policy = TestPolicy.start(cluster, PlacementKeys.SECOND_REPLICA, where);
      for (int i = 0; i < 50; i++) {
        var targets = newBlock(policy, "/" + where + i, 2, client("/r1/c1", "10.9.0.1"));
        String second = targets[1].getDatanodeDescriptor().getNetworkLocation();
        assertTrue(second.startsWith(where.equals("same-rack") ? "/r1/" : "/r2/"), second);
      }
    }
  }

  @Test
  void threeReplicasAreOnTwoRacksEitherWay() {
    hosts(4);
    for (String where : List.of("other-rack", "same-rack")) {
      TestPolicy policy = TestPolicy.start(cluster, PlacementKeys.SECOND_REPLICA, where);
      for (int i = 0; i < 50; i++) {
        var targets = List.of(newBlock(policy, "/" + where + i, 3, client("/r1/c1", "10.9.0.1")));
        assertEquals(2, DomainsAreKeptApartTest.racks(targets).size());
        assertEquals(3, DomainsAreKeptApartTest.locations(targets).size());
      }
    }
  }

  /** Runs one reason for leaving a node. */
  private void leaves(Left why, TestPolicy policy, java.util.function.Consumer<DatanodeDescriptor> event) {
    Node client = client("/r1/c1", "10.9.0.1");
    DatanodeDescriptor before = policy.first("/file", client);
    event.accept(before);
    DatanodeDescriptor after = policy.first("/file", client);
    assertNotEquals(before, after);
    assertTrue(after.getNetworkLocation().startsWith("/r1/"), "stays in the rack");
    assertEquals(1, policy.metrics().leftByReason().get(why.text()), why.text());
    assertEquals(1, policy.metrics().left());
    assertSame(after, policy.first("/file", client), "sticks to the new node");
  }

  @Test
  void aFullNodeIsLeft() {
    hosts(4);
    leaves(Left.FULL, TestPolicy.start(cluster), node -> cluster.heartbeat(node, BLOCK / 2, 0));
  }

  @Test
  void aStaleNodeIsLeft() {
    hosts(4);
    leaves(Left.STALE, TestPolicy.start(cluster), node -> cluster.silent(node, 31_000));
  }

  @Test
  void aDecommissioningNodeIsLeft() {
    hosts(4);
    leaves(Left.NOT_IN_SERVICE, TestPolicy.start(cluster), cluster::decommissioning);
  }

  @Test
  void aRemovedNodeIsLeft() {
    hosts(4);
    leaves(Left.GONE, TestPolicy.start(cluster), cluster::remove);
  }

  @Test
  void anOverloadedNodeIsLeft() {
    hosts(4);
    leaves(Left.OVERLOADED, TestPolicy.start(cluster), node -> cluster.heartbeat(node, 100 * BLOCK, 20));
  }

  @Test
  void aLoneWriterDoesNotOverloadItsOwnNode() {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster);
    Node client = client("/r1/c1", "10.9.0.1");
    DatanodeDescriptor node = policy.first("/file", client);
    cluster.heartbeat(node, 100 * BLOCK, 2);
    assertSame(node, policy.first("/file", client));
  }

  @Test
  void considerLoadCanBeSwitchedOff() {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster, "dfs.namenode.redundancy.considerLoad", "false");
    Node client = client("/r1/c1", "10.9.0.1");
    DatanodeDescriptor node = policy.first("/file", client);
    cluster.heartbeat(node, 100 * BLOCK, 20);
    assertSame(node, policy.first("/file", client));
  }

  @Test
  void aSlowNodeIsLeftIfSlowNodesAreExcluded() {
    hosts(4);
    TestPolicy policy =
        TestPolicy.start(
            cluster,
            "dfs.datanode.peer.stats.enabled",
            "true",
            "dfs.namenode.block-placement-policy.exclude-slow-nodes.enabled",
            "true");
    try {
      leaves(Left.SLOW, policy, node -> DatanodeManager.getSlowNodesUuidSet().add(node.getDatanodeUuid()));
    } finally {
      DatanodeManager.getSlowNodesUuidSet().clear();
    }
  }

  @Test
  void aNodeThatTheClientExcludesIsLeft() {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster);
    Node client = client("/r1/c1", "10.9.0.1");
    DatanodeDescriptor bad = policy.first("/file", client);
    Set<Node> excluded = new HashSet<>(Set.of(bad));
    var target = newBlock(policy, "/file", 1, client, excluded, null, FakeCluster.hot(), null)[0];
    assertNotEquals(bad, target.getDatanodeDescriptor());
    assertSame(target.getDatanodeDescriptor(), policy.first("/file", client));
  }

  @Test
  void aClientGoesOnWithItsNodeWhenItStartsAnotherFile() {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster);
    FakeCaller caller = new FakeCaller(1);
    Node client = client("/r1/c1", "10.9.0.1");
    DatanodeDescriptor node = caller.call(() -> policy.first("/f0", client));
    for (int file = 1; file < 10; file++) {
      policy.nowMs += 1000;
      String path = "/f" + file;
      assertSame(node, caller.call(() -> policy.first(path, client)));
    }
    assertEquals(1, policy.assignments().size());
    assertEquals(9, policy.metrics().takenOver.sum());
  }

  @Test
  void filesThatAClientWritesAtOnceGetNodesOfTheirOwn() {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster);
    FakeCaller caller = new FakeCaller(1);
    Node client = client("/r1/c1", "10.9.0.1");
    Set<DatanodeDescriptor> nodes = new HashSet<>();
    for (int file = 0; file < 4; file++) {
      policy.nowMs += 1000;
      String path = "/f" + file;
      DatanodeDescriptor node = caller.call(() -> policy.first(path, client));
      cluster.schedule(node, 1);
      nodes.add(node);
    }
    assertEquals(4, nodes.size());
  }

  @Test
  void assignmentsExpire() {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster);
    cluster.schedule(policy.first("/file", client("/r1/c1", "10.9.0.1")), 1);
    policy.nowMs += 59_000;
    policy.tick();
    assertTrue(policy.assignments().list().get(0).active());
    policy.nowMs += 2_000;
    policy.tick();
    assertTrue(!policy.assignments().list().get(0).active(), "quiet for longer than the window");
    assertEquals(0, writers(policy));
    policy.nowMs += 540_000;
    policy.tick();
    assertEquals(0, policy.assignments().size());
    assertEquals(1, policy.metrics().expired.sum());
  }

  @Test
  void aClosedFileKeepsNoPlace() {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster);
    Node client = client("/r1/c1", "10.9.0.1");
    DatanodeDescriptor writing = policy.first("/writing", client);
    cluster.schedule(writing, 1);
    DatanodeDescriptor closed = policy.first("/closed", client);
    policy.nowMs += Assignments.SETTLE_MIN_IDLE_MS - 1;
    policy.tick();
    assertEquals(2, writers(policy), "no block under way, but perhaps between two");
    policy.nowMs += 1;
    policy.tick();
    assertEquals(1, writers(policy));
    assertEquals(1, policy.metrics().settled.sum());
    assertSame(closed, policy.first("/closed", client), "it was open after all: the node is the same");
    assertEquals(2, writers(policy));
  }

  @Test
  void aNodeWhereAnotherWritesIsNotTakenOver() {
    cluster.add("/r1/h1", "10.1.0.1", 9866);
    cluster.add("/r1/h2", "10.1.0.2", 9866);
    TestPolicy policy = TestPolicy.start(cluster);
    FakeCaller before = new FakeCaller(1);
    FakeCaller other = new FakeCaller(2);
    Node client = client("/r1/c1", "10.9.0.1");
    DatanodeDescriptor node = before.call(() -> policy.first("/before", client));
    DatanodeDescriptor free = cluster.nodes.get(node == cluster.nodes.get(0) ? 1 : 0);
    policy.nowMs += Assignments.SETTLE_MIN_IDLE_MS;
    policy.tick();
    cluster.heartbeat(free, 0, 0);
    assertSame(node, other.call(() -> policy.first("/other", client)));
    cluster.schedule(node, 1);
    cluster.idle(free);
    assertSame(free, before.call(() -> policy.first("/after", client)));
    assertEquals(0, policy.metrics().takenOver.sum());
  }

  @Test
  void assignmentsDieWithTheClient() {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster);
    FakeCaller stays = new FakeCaller(1);
    FakeCaller goes = new FakeCaller(2);
    Node client = client("/r1/c1", "10.9.0.1");
    stays.call(() -> policy.first("/stays", client));
    goes.call(() -> policy.first("/goes", client));
    goes.close();
    policy.nowMs += 61_000;
    policy.tick();
    assertEquals(1, policy.assignments().size());
    assertEquals("/stays", policy.assignments().list().get(0).writer.path());
    assertEquals(1, policy.metrics().clientGone.sum());
  }

  @Test
  void assignmentsAreBounded() {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster, PlacementKeys.MAX_ASSIGNMENTS, "320");
    for (int i = 0; i < 5000; i++) {
      policy.first("/f" + i, client("/r1/c1", "10.9.0.1"));
    }
    assertTrue(policy.assignments().size() <= 320);
    assertEquals(5000 - policy.assignments().size(), policy.metrics().evicted.sum());
    assertEquals(policy.assignments().size(), writers(policy), "what was dropped is not counted");
  }

  private static int writers(HayloftPlacementPolicy policy) {
    int sum = 0;
    for (var entry : policy.view().get().all.entries) {
      sum += entry.load.writers.get();
    }
    return sum;
  }

  @Test
  void theBalancingThreadEvensOutWriters() {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster);
    // Only one node can take them at first.
    for (DatanodeDescriptor node : cluster.nodes.subList(1, 4)) {
      cluster.heartbeat(node, 0, 0);
    }
    Node client = client("/r1/c1", "10.9.0.1");
    for (int w = 0; w < 8; w++) {
      assertSame(cluster.nodes.get(0), policy.first("/w" + w, client));
    }
    cluster.nodes.forEach(cluster::idle);
    policy.tick();
    for (var entry : policy.view().get().racks.get("/r1").nodes.entries) {
      int writers = entry.load.writers.get();
      assertTrue(writers >= 1 && writers <= 3, entry.node + " has " + writers);
    }
    assertTrue(policy.metrics().balanced.sum() >= 3);
    assertEquals(8, writers(policy));
    long moved = policy.metrics().balanced.sum();
    policy.tick();
    assertEquals(moved, policy.metrics().balanced.sum(), "and then rests");
  }

  @Test
  void theBalancingThreadLeavesTheRackOnlyForALot() {
    cluster.add("/r1/h1", "10.1.0.1", 9866);
    cluster.add("/r2/h1", "10.2.0.1", 9866);
    TestPolicy policy = TestPolicy.start(cluster);
    Node client = client("/r1/c1", "10.9.0.1");
    for (int w = 0; w < 3; w++) {
      policy.first("/w" + w, client);
    }
    policy.tick();
    assertEquals(0, policy.metrics().balanced.sum());
    for (int w = 3; w < 9; w++) {
      policy.first("/w" + w, client);
    }
    policy.tick();
    assertTrue(policy.metrics().balanced.sum() >= 2);
  }

  @Test
  void concurrentCallsAgree() throws Exception {
    hosts(8);
    TestPolicy policy = TestPolicy.start(cluster);
    var pool = Executors.newFixedThreadPool(8);
    try {
      List<Callable<Map<String, Set<DatanodeDescriptor>>>> tasks = new ArrayList<>();
      for (int t = 0; t < 8; t++) {
        int thread = t;
        tasks.add(
            () -> {
              Map<String, Set<DatanodeDescriptor>> seen = new HashMap<>();
              for (int i = 0; i < 2000; i++) {
                String path = "/f" + i % 40;
                var targets = newBlock(policy, path, 3, client("/r1/c1", "10.9.0.1"));
                assertEquals(3, DomainsAreKeptApartTest.locations(List.of(targets)).size());
                seen.computeIfAbsent(path, p -> new HashSet<>())
                    .add(targets[0].getDatanodeDescriptor());
                if (thread == 0 && i % 100 == 0) {
                  policy.assignments().sweep(60_000, 600_000);
                }
              }
              return seen;
            });
      }
      Map<String, Set<DatanodeDescriptor>> all = new HashMap<>();
      for (Future<Map<String, Set<DatanodeDescriptor>>> done : pool.invokeAll(tasks)) {
        done.get().forEach((path, nodes) -> all.computeIfAbsent(path, p -> new HashSet<>()).addAll(nodes));
      }
      all.forEach((path, nodes) -> assertEquals(1, nodes.size(), path + " had " + nodes));
      assertEquals(40, policy.assignments().size());
      assertEquals(40, writers(policy));
      int streams = 0;
      for (var entry : policy.view().get().all.entries) {
        streams += entry.load.streams.get();
      }
      assertEquals(120, streams, "each writer counts at its three nodes and nowhere else");
    } finally {
      pool.shutdownNow();
    }
  }

  @Test
  void whatHappensIsVisible() throws Exception {
    hosts(4);
    TestPolicy policy = TestPolicy.start(cluster);
    DatanodeDescriptor node = policy.first("/dir/file", client("/r1/c1", "10.9.0.1"));
    var server = java.lang.management.ManagementFactory.getPlatformMBeanServer();
    var name = new javax.management.ObjectName(PlacementMBean.NAME);
    assertEquals("split", server.getAttribute(name, "Layout"));
    assertEquals(8, server.getAttribute(name, "Domains"));
    assertEquals(1, server.getAttribute(name, "ActiveWriters"));
    String json = (String) server.getAttribute(name, "CurrentAssignments");
    assertTrue(json.contains("\"path\":\"/dir/file\"") && json.contains(node.getXferAddr()), json);
    assertNotNull(server.getAttribute(name, "NodesLeft"));
    assertNotNull(server.getAttribute(name, "WritersPerNode"));
  }
}
