package io.hayloft.placement;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementPolicy;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The example configurations are right as they stand. */
class ExamplesTest {
  @ParameterizedTest
  @CsvSource({"split,/rack1/store1", "virtual-nodes,/rack1"})
  void areAccepted(String name, String location) {
    Path dir = Path.of("examples", name);
    Configuration conf = new Configuration(false);
    for (String file : List.of("core-site.xml", "hdfs-site.xml")) {
      conf.addResource(new org.apache.hadoop.fs.Path(dir.resolve(file).toUri()));
    }
    assertEquals(Layout.SPLIT, PlacementConfig.read(conf).layout());
    for (String key :
        List.of(
            DFSConfigKeys.DFS_BLOCK_REPLICATOR_CLASSNAME_KEY,
            DFSConfigKeys.DFS_BLOCK_PLACEMENT_EC_CLASSNAME_KEY)) {
      assertNotNull(conf.getClass(key, null, BlockPlacementPolicy.class));
    }
    conf.set(PlacementKeys.TOPOLOGY_FILE, dir.resolve("topology").toString());
    FileTopologyMapping mapping = new FileTopologyMapping();
    mapping.setConf(conf);
    assertEquals(List.of(location), mapping.resolve(List.of("10.0.1.101")));
  }

  @Test
  void theFileOfDomainsIsRead() {
    var domains =
        HostTable.read(
            Path.of("examples", "virtual-nodes", "domains"),
            PlacementKeys.DOMAINS_FILE,
            name -> name);
    assertEquals(domains.get("10.0.1.151"), domains.get("10.0.1.152"));
    assertEquals(4, new HashSet<>(domains.values()).size());
  }
}
