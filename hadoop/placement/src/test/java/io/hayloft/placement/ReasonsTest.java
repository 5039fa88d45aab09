package io.hayloft.placement;

import static org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster.client;
import static org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster.newBlock;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.StringWriter;
import java.util.List;
import org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster;
import org.apache.log4j.Level;
import org.apache.log4j.Logger;
import org.apache.log4j.PatternLayout;
import org.apache.log4j.WriterAppender;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What the log says at debug level: one line a choice, each node with its domain and why it. */
class ReasonsTest {
  private final Logger logger = Logger.getLogger("io.hayloft.placement.reasons");
  private final StringWriter text = new StringWriter();
  private final WriterAppender appender = new WriterAppender(new PatternLayout("%m%n"), text);
  private final FakeCluster cluster = new FakeCluster();
  private Level before;

  @BeforeEach
  void listen() {
    before = logger.getLevel();
    logger.addAppender(appender);
    for (int host = 1; host <= 3; host++) {
      cluster.add("/r1/h" + host, "10.1.0." + host, 9866);
    }
  }

  @AfterEach
  void restore() {
    logger.removeAppender(appender);
    logger.setLevel(before);
  }

  @Test
  void everyNodeIsNamedWithItsReason() {
    logger.setLevel(Level.DEBUG);
    TestPolicy policy = TestPolicy.start(cluster);
    var first = newBlock(policy, "/file", 2, client("/r1/c1", "10.9.0.1"));
    newBlock(policy, "/file", 2, client("/r1/c1", "10.9.0.1"));
    List<String> lines = text.toString().lines().toList();
    assertEquals(2, lines.size(), text + "");
    String node = first[0].getDatanodeDescriptor().getXferAddr();
    String domain = first[0].getDatanodeDescriptor().getNetworkLocation();
    assertTrue(
        lines.get(0).startsWith("/file: " + node + " in " + domain + " (new for the writer: in its rack, fewest writers); "),
        lines.get(0));
    assertTrue(lines.get(1).startsWith("/file: " + node + " in " + domain + " (the writer's node); "), lines.get(1));
    assertEquals(2, lines.get(1).split("; ").length, lines.get(1));
  }

  @Test
  void nothingIsCollectedOtherwise() {
    logger.setLevel(Level.INFO);
    newBlock(TestPolicy.start(cluster), "/file", 2, client("/r1/c1", "10.9.0.1"));
    assertEquals("", text.toString());
  }
}
