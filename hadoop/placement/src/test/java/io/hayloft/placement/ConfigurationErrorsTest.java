package io.hayloft.placement;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.server.blockmanagement.CombinedHostFileManager;
import org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Each mistake gives one sentence that says what to do. */
class ConfigurationErrorsTest {
  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "layout=stripes|hayloft.placement.layout is 'stripes': use split, round-robin, hybrid or random.",
        "domains=racks|hayloft.placement.domains is 'racks': use topology, host, upgrade-domain or file.",
        "domains=file|hayloft.placement.domains=file needs the file's path in hayloft.placement.domains.file.",
        "domains=file;domains.file=/no/such|Cannot read the file /no/such of hayloft.placement.domains.file: it does not exist.",
        "domains=topology;domains.file=/x|hayloft.placement.domains.file is set, but hayloft.placement.domains is topology, which does not use it: set hayloft.placement.domains=file or remove the path.",
        "second-replica=near|hayloft.placement.second-replica is 'near': use other-rack or same-rack.",
        "layout=hybrid;second-replica=same-rack|hayloft.placement.second-replica is set together with hayloft.placement.layout=hybrid, but it belongs to the layout split only: remove one of them.",
        "layout=random;domains=host|hayloft.placement.domains is set together with hayloft.placement.layout=random, but it has no meaning there, since that layout is the stock policy, which knows no failure domains: remove one of them.",
        "active-window=11m|hayloft.placement.active-window (660000 ms) is longer than hayloft.placement.assignment.expiry (600000 ms): a writer cannot be active after it is forgotten.",
        "active-window=soon|hayloft.placement.active-window is 'soon': use a time such as 30s or 500ms.",
        "balance.interval=0|hayloft.placement.balance.interval is 0 ms: use a time between 1ms and 3650d.",
        "balance.drift=0|hayloft.placement.balance.drift is 0: use a whole number from 1 to 1000000.",
        "assignments.max=many|hayloft.placement.assignments.max is 'many': use a whole number from 1 to 10000000.",
        "domains=upgrade-domain|hayloft.placement.domains=upgrade-domain needs a hosts file with upgrade domains: set dfs.namenode.hosts.provider.classname to org.apache.hadoop.hdfs.server.blockmanagement.CombinedHostFileManager.",
      })
  void oneSentence(String keys, String sentence) {
    Configuration conf = new Configuration(false);
    for (String pair : keys.split(";")) {
      conf.set(PlacementKeys.PREFIX + pair.split("=")[0], pair.split("=")[1]);
    }
    var error =
        assertThrows(
            IllegalArgumentException.class,
            () -> new FakeCluster().start(new HayloftPlacementPolicy(), conf));
    assertEquals(sentence, error.getMessage());
  }

  @Test
  void aMisspeltKeyIsNotIgnored() {
    var error =
        assertThrows(
            IllegalArgumentException.class,
            () -> PlacementConfig.read(TestPolicy.conf("hayloft.placement.layuot", "split")));
    assertTrue(
        error.getMessage().startsWith("Unknown key hayloft.placement.layuot: the keys are "),
        error.getMessage());
  }

  @Test
  void theStockLayoutIsNotForGroups() {
    var error =
        assertThrows(
            IllegalArgumentException.class,
            () ->
                new FakeCluster()
                    .start(
                        new HayloftEcPlacementPolicy(),
                        TestPolicy.conf(PlacementKeys.LAYOUT, "random")));
    assertTrue(error.getMessage().endsWith("remove it."), error.getMessage());
  }

  @Test
  void whatIsRightIsAccepted() {
    PlacementConfig usual = PlacementConfig.read(new Configuration(false));
    assertEquals(Layout.SPLIT, usual.layout());
    assertEquals(PlacementConfig.DomainSource.TOPOLOGY, usual.domains());
    assertEquals(65_536, usual.maxAssignments());
    PlacementConfig other =
        PlacementConfig.read(
            TestPolicy.conf(
                PlacementKeys.DOMAINS, " upgrade-domain ",
                PlacementKeys.SECOND_REPLICA, "same-rack",
                PlacementKeys.BALANCE_INTERVAL, "250ms",
                "dfs.namenode.hosts.provider.classname", CombinedHostFileManager.class.getName()));
    assertEquals(250, other.balanceIntervalMs());
    assertTrue(other.secondInSameRack());
    PlacementConfig file = PlacementConfig.read(TestPolicy.conf(PlacementKeys.DOMAINS_FILE, "/x"));
    assertEquals(PlacementConfig.DomainSource.FILE, file.domains());
  }
}
