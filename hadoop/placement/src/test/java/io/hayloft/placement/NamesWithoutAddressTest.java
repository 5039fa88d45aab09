package io.hayloft.placement;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.StringWriter;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonConfigurationKeysPublic;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.DatanodeReportType;
import org.apache.hadoop.net.TableMapping;
import org.apache.log4j.Level;
import org.apache.log4j.Logger;
import org.apache.log4j.PatternLayout;
import org.apache.log4j.WriterAppender;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * A topology file with a host name that has no address, under a real NameNode. Names are looked up
 * in a file, which only a JVM's start can say: each case runs in a JVM of its own.
 */
class NamesWithoutAddressTest {
  private static final String NAME = "store1";
  private static final String ADDRESS = "127.0.0.1";

  @TempDir Path dir;

  @Test
  @Timeout(180)
  void theStockMappingPlacesTheNodeElsewhereAndSaysNothing() throws Exception {
    run("stock");
  }

  @Test
  @Timeout(180)
  void oursSaysItOnceTriesAgainAndKeepsTheLastAnswer() throws Exception {
    run("ours");
  }

  private void run(String which) throws Exception {
    Path names = Cluster.names(dir);
    Cluster.resolvable(names, false);
    Path log = dir.resolve("log");
    Process process =
        new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xmx512m",
                "-Djdk.net.hosts.file=" + names,
                "-Dsun.net.inetaddr.ttl=0",
                "-Dsun.net.inetaddr.negative.ttl=0",
                "-cp",
                System.getProperty("java.class.path"),
                Cluster.class.getName(),
                which,
                dir.toString())
            .redirectErrorStream(true)
            .redirectOutput(log.toFile())
            .start();
    try {
      assertTrue(process.waitFor(170, TimeUnit.SECONDS), () -> "no end: " + end(log));
      assertEquals(0, process.exitValue(), () -> end(log));
    } finally {
      process.destroyForcibly();
    }
  }

  private static String end(Path log) {
    try {
      List<String> lines = Files.readAllLines(log, StandardCharsets.UTF_8);
      return String.join("\n", lines.subList(Math.max(0, lines.size() - 60), lines.size()));
    } catch (java.io.IOException e) {
      return e.toString();
    }
  }

  /** The program of the other JVM: a NameNode, one DataNode, and who is asked for the mapping. */
  static final class Cluster {
    /** Formatting makes a mapping of its own, here in the same JVM; each says it once. */
    private static final int MAPPINGS = 2;

    private final Path names;
    private final Configuration conf;
    private final Path dir;

    private Cluster(Path dir) {
      this.dir = dir;
      names = names(dir);
      conf = RealNameNode.conf();
    }

    public static void main(String[] arguments) {
      try {
        Cluster cluster = new Cluster(Path.of(arguments[1]));
        if (arguments[0].equals("ours")) {
          cluster.ours();
        } else {
          cluster.stock();
        }
        System.exit(0);
      } catch (Throwable e) {
        e.printStackTrace();
        System.exit(1);
      }
    }

    static Path names(Path dir) {
      return dir.resolve("names");
    }

    /** What looking names up finds from now on: this machine, and the name or not. */
    static void resolvable(Path names, boolean known) throws Exception {
      // Not by its address: the JVM may ask for it in this very file.
      String machine = Files.readString(Path.of("/proc/sys/kernel/hostname")).trim();
      String here = ADDRESS + " localhost " + machine;
      Path next = names.resolveSibling("names.next");
      Files.writeString(next, here + (known ? " " + NAME : "") + "\n");
      Files.move(next, names, java.nio.file.StandardCopyOption.REPLACE_EXISTING);
    }

    private void stock() throws Exception {
      Path table = Files.writeString(dir.resolve("table"), NAME + " /r1/h1\n");
      conf.set(CommonConfigurationKeysPublic.NET_TOPOLOGY_TABLE_MAPPING_FILE_KEY, table.toString());
      mapping(TableMapping.class);
      StringWriter said = new StringWriter();
      listen(Logger.getLogger("org.apache.hadoop"), said);
      try (MiniDFSCluster cluster = start()) {
        assertEquals("/default-rack", location(cluster));
        assertEquals(List.of(), said.toString().lines().filter(l -> l.contains(NAME)).toList());
      }
    }

    private void ours() throws Exception {
      Path topology = Files.writeString(dir.resolve("topology"), NAME + " /r1/h1\n");
      conf.set(PlacementKeys.TOPOLOGY_FILE, topology.toString());
      conf.set(PlacementKeys.TOPOLOGY_INTERVAL, "50ms");
      mapping(FileTopologyMapping.class);
      StringWriter said = new StringWriter();
      listen(Logger.getLogger(Addresses.class), said);
      try (MiniDFSCluster cluster = start()) {
        assertEquals("/default-rack/" + ADDRESS, location(cluster));
        long first = warnings(said);
        assertTrue(first >= 1 && first <= MAPPINGS, said.toString());
        // Many looks later no more is said.
        Thread.sleep(500);
        assertEquals(first, warnings(said), said.toString());
        assertTrue(said.toString().startsWith("WARN " + NAME + " of the topology file has no"));

        resolvable(names, true);
        RealNameNode.until("the name is looked up again", () -> said.toString().contains("now"));
        again(cluster, "/r1/h1");

        resolvable(names, false);
        assertEquals(List.of(), addressesOf(NAME), "the name is gone");
        // A file that changed has every name looked up.
        Files.writeString(topology, NAME + " /r1/h2\n" + "other /r1/h3\n");
        RealNameNode.until(
            "the loss is told", () -> said.toString().contains("its last one stands, " + ADDRESS));
        again(cluster, "/r1/h2");
        long lost = said.toString().lines().filter(l -> l.contains("last one stands")).count();
        assertTrue(lost <= MAPPINGS, said.toString());
      }
    }

    private void mapping(Class<? extends org.apache.hadoop.net.DNSToSwitchMapping> type) {
      conf.setClass(
          CommonConfigurationKeysPublic.NET_TOPOLOGY_NODE_SWITCH_MAPPING_IMPL_KEY,
          type,
          org.apache.hadoop.net.DNSToSwitchMapping.class);
    }

    private static void listen(Logger logger, StringWriter said) {
      logger.setLevel(Level.INFO);
      logger.addAppender(new WriterAppender(new PatternLayout("%p %m%n"), said));
    }

    private static long warnings(StringWriter said) {
      return said.toString().lines().filter(line -> line.startsWith("WARN ")).count();
    }

    private MiniDFSCluster start() throws Exception {
      MiniDFSCluster cluster =
          new MiniDFSCluster.Builder(conf, dir.resolve("cluster").toFile())
              .numDataNodes(1)
              .useConfiguredTopologyMappingClass(true)
              .build();
      cluster.waitActive();
      return cluster;
    }

    /** The node registers anew; then it is there. */
    private static void again(MiniDFSCluster cluster, String expected) throws Exception {
      cluster.restartDataNode(0, true);
      cluster.waitActive();
      RealNameNode.until("the node is at " + expected, () -> location(cluster).equals(expected));
    }

    private static String location(MiniDFSCluster cluster) throws Exception {
      return cluster.getFileSystem().getDataNodeStats(DatanodeReportType.LIVE)[0]
          .getNetworkLocation();
    }

    private static List<String> addressesOf(String name) {
      try {
        return List.of(InetAddress.getByName(name).getHostAddress());
      } catch (java.net.UnknownHostException e) {
        return List.of();
      }
    }
  }
}
