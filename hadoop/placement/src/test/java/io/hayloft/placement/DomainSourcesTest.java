package io.hayloft.placement;

import static org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster.client;
import static org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster.newBlock;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.CombinedHostFileManager;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Where failure domains come from, besides {@code /rack/host}. */
class DomainSourcesTest {
  private final FakeCluster cluster = new FakeCluster();
  @TempDir Path dir;

  /** Twelve nodes on plain racks, four on each of three addresses. */
  private void plainRacks() {
    for (int h = 1; h <= 3; h++) {
      for (int n = 0; n < 4; n++) {
        cluster.add("/rack1", "10.0.0." + h, 9866 + n);
      }
    }
  }

  private void apart(TestPolicy policy, Function<DatanodeDescriptor, ?> domain) {
    for (int i = 0; i < 100; i++) {
      var targets = newBlock(policy, "/f" + i, 3, client("/rack1", "10.9.0.1"));
      List<?> domains =
          Arrays.stream(targets).map(DatanodeStorageInfo::getDatanodeDescriptor).map(domain).toList();
      assertEquals(3, domains.stream().distinct().count(), domains.toString());
      DatanodeInfo[] nodes =
          Arrays.stream(targets)
              .map(DatanodeStorageInfo::getDatanodeDescriptor)
              .toArray(DatanodeInfo[]::new);
      assertTrue(policy.verifyBlockPlacement(nodes, 3).isPlacementPolicySatisfied());
    }
  }

  @Test
  void nodesOfOneAddressAreOneDomainWithoutAnyConfiguration() {
    plainRacks();
    apart(TestPolicy.start(cluster), DatanodeDescriptor::getIpAddr);
    apart(TestPolicy.start(cluster, PlacementKeys.DOMAINS, "host"), DatanodeDescriptor::getIpAddr);
  }

  @Test
  void aBlockWithTwoReplicasOnOneHostIsReported() {
    plainRacks();
    TestPolicy policy = TestPolicy.start(cluster);
    DatanodeInfo[] nodes = {cluster.nodes.get(0), cluster.nodes.get(1), cluster.nodes.get(4)};
    var verdict = policy.verifyBlockPlacement(nodes, 3);
    assertFalse(verdict.isPlacementPolicySatisfied());
    assertEquals(1, verdict.getAdditionalReplicasRequired());
    assertTrue(verdict.getErrorDescription().contains("1 more failure domain"), verdict.getErrorDescription());
  }

  @Test
  void upgradeDomainsAreDomains() {
    plainRacks();
    for (int i = 0; i < 12; i++) {
      cluster.nodes.get(i).setUpgradeDomain("ud" + i % 3);
    }
    TestPolicy policy =
        TestPolicy.start(
            cluster,
            PlacementKeys.DOMAINS,
            "upgrade-domain",
            "dfs.namenode.hosts.provider.classname",
            CombinedHostFileManager.class.getName());
    apart(policy, DatanodeDescriptor::getUpgradeDomain);
    // The hosts file is refreshed: nodes change their domains while the policy runs.
    for (int i = 0; i < 12; i++) {
      cluster.nodes.get(i).setUpgradeDomain("new" + i / 4);
    }
    apart(policy, DatanodeDescriptor::getUpgradeDomain);
  }

  @Test
  void aMappingFileGivesDomainsAndIsReadAgain() throws Exception {
    plainRacks();
    Path file = dir.resolve("domains");
    // Ports tell the nodes of one address apart: power strips, say, in place of hosts.
    write(file, 0, node -> "strip" + (node.getXferPort() - 9866));
    TestPolicy policy =
        TestPolicy.start(
            cluster, PlacementKeys.DOMAINS, "file", PlacementKeys.DOMAINS_FILE, file.toString());
    apart(policy, DatanodeDescriptor::getXferPort);
    write(file, 5, node -> "room" + node.getIpAddr());
    policy.tick();
    apart(policy, DatanodeDescriptor::getIpAddr);
    Files.writeString(file, "one two three\n");
    Files.setLastModifiedTime(file, FileTime.fromMillis(9_000_000));
    policy.tick();
    apart(policy, DatanodeDescriptor::getIpAddr);
  }

  private void write(Path file, int version, Function<DatanodeDescriptor, String> domain)
      throws Exception {
    StringBuilder text = new StringBuilder("# host:port  domain\n\n");
    for (DatanodeDescriptor node : cluster.nodes) {
      text.append(node.getXferAddr()).append('\t').append(domain.apply(node)).append('\n');
    }
    Files.writeString(file, text);
    Files.setLastModifiedTime(file, FileTime.fromMillis(1_000_000L * version));
  }

  @Test
  void aNodeThatTheFileDoesNotNameIsInTheDomainOfItsHost() throws Exception {
    plainRacks();
    Path file = dir.resolve("domains");
    Files.writeString(file, "10.0.0.1 a\nHOST-10.0.0.2 b # by name\n");
    TestPolicy policy =
        TestPolicy.start(
            cluster, PlacementKeys.DOMAINS, "file", PlacementKeys.DOMAINS_FILE, file.toString());
    apart(policy, DatanodeDescriptor::getIpAddr);
    assertEquals(3, policy.view().get().domainsInService);
  }
}
