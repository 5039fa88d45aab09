package org.apache.hadoop.hdfs.server.namenode;

import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintWriter;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.crypto.CryptoProtocolVersion;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.protocol.Block;
import org.apache.hadoop.hdfs.protocol.BlockListAsLongs;
import org.apache.hadoop.hdfs.protocol.DatanodeID;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.security.token.block.ExportedBlockKeys;
import org.apache.hadoop.hdfs.server.common.HdfsServerConstants.NodeType;
import org.apache.hadoop.hdfs.server.common.StorageInfo;
import org.apache.hadoop.hdfs.server.datanode.DataNodeLayoutVersion;
import org.apache.hadoop.hdfs.server.datanode.FinalizedReplica;
import org.apache.hadoop.hdfs.server.protocol.BlockReportContext;
import org.apache.hadoop.hdfs.server.protocol.DatanodeRegistration;
import org.apache.hadoop.hdfs.server.protocol.DatanodeStorage;
import org.apache.hadoop.hdfs.server.protocol.NamenodeProtocols;
import org.apache.hadoop.hdfs.server.protocol.NamespaceInfo;
import org.apache.hadoop.hdfs.server.protocol.ReceivedDeletedBlockInfo;
import org.apache.hadoop.hdfs.server.protocol.SlowDiskReports;
import org.apache.hadoop.hdfs.server.protocol.SlowPeerReports;
import org.apache.hadoop.hdfs.server.protocol.StorageBlockReport;
import org.apache.hadoop.hdfs.server.protocol.StorageReceivedDeletedBlocks;
import org.apache.hadoop.hdfs.server.protocol.StorageReport;
import org.apache.hadoop.io.EnumSetWritable;
import org.apache.hadoop.net.DNSToSwitchMapping;
import org.apache.hadoop.net.StaticMapping;

/**
 * What a NameNode with many blocks takes for whole block reports and for fsck, with the policy that
 * its configuration names. Imaginary DataNodes, four on each of six hosts in three racks, report
 * blocks of three replicas, over calls within the process.
 *
 * <p>It lies in Hadoop's package since nothing public starts fsck within the process.
 *
 * <p>Arguments: the number of blocks. Prints one line a measurement, in milliseconds.
 */
public final class ReportsAndFsck {
  private static final int RACKS = 3;
  private static final int HOSTS = 6;
  private static final int NODES_PER_HOST = 4;
  private static final int REPLICAS = 3;
  private static final int BLOCKS_PER_FILE = 100;
  private static final long BLOCK_BYTES = 1024;
  private static final long NODE_BYTES = 1L << 50;
  private static final int ROUNDS = 5;
  private static final String CLIENT = "reports-and-fsck";

  private final Configuration conf;
  private final NameNode nameNode;
  private final NamenodeProtocols calls;
  private final String pool;
  private final Map<String, ImaginaryNode> nodes = new HashMap<>();

  /** A DataNode of one storage, and what it holds. */
  private static final class ImaginaryNode {
    private DatanodeRegistration registration;
    private final DatanodeStorage storage;
    private final List<Block> blocks = new ArrayList<>();

    private ImaginaryNode(DatanodeRegistration registration) {
      this.registration = registration;
      storage = new DatanodeStorage("DS-" + registration.getDatanodeUuid());
    }
  }

  private ReportsAndFsck(Configuration conf) throws IOException {
    this.conf = conf;
    nameNode = NameNode.createNameNode(new String[0], conf);
    calls = nameNode.getRpcServer();
    pool = nameNode.getNamesystem().getBlockPoolId();
  }

  /** Runs it. */
  public static void main(String[] arguments) throws Exception {
    int blocks = Integer.parseInt(arguments[0]);
    Configuration conf = new HdfsConfiguration();
    conf.setClass(
        DFSConfigKeys.NET_TOPOLOGY_NODE_SWITCH_MAPPING_IMPL_KEY,
        StaticMapping.class,
        DNSToSwitchMapping.class);
    // Heartbeats come once; nodes must not die meanwhile.
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_HEARTBEAT_RECHECK_INTERVAL_KEY, 3_600_000);
    ReportsAndFsck bench = new ReportsAndFsck(conf);
    bench.register();
    bench.write(blocks);
    bench.report();
    bench.fsck();
    System.exit(0);
  }

  private void register() throws IOException {
    NamespaceInfo namespace = calls.versionRequest();
    for (int host = 0; host < HOSTS; host++) {
      String name = "host" + host;
      StaticMapping.addNodeToRack(name, "/rack" + host % RACKS);
      for (int node = 0; node < NODES_PER_HOST; node++) {
        int port = 9866 + 10 * node;
        String uuid = name + "-" + node;
        DatanodeID id =
            new DatanodeID("10.0.0." + (host + 1), name, uuid, port, port + 1, 0, port + 2);
        var registration =
            new DatanodeRegistration(
                id,
                new StorageInfo(
                    DataNodeLayoutVersion.getCurrentLayoutVersion(),
                    namespace.getNamespaceID(),
                    namespace.getClusterID(),
                    namespace.getCTime(),
                    NodeType.DATA_NODE),
                new ExportedBlockKeys(),
                namespace.getSoftwareVersion());
        var imaginary = new ImaginaryNode(registration);
        imaginary.registration = calls.registerDatanode(registration);
        calls.sendHeartbeat(
            imaginary.registration,
            new StorageReport[] {
              new StorageReport(imaginary.storage, false, NODE_BYTES, 0, NODE_BYTES, 0, 0)
            },
            0, 0, 0, 0, 0, null, false, SlowPeerReports.EMPTY_REPORT, SlowDiskReports.EMPTY_REPORT);
        nodes.put(uuid, imaginary);
        report(imaginary);
      }
    }
  }

  private void write(int blocks) throws IOException {
    for (int file = 0; file * BLOCKS_PER_FILE < blocks; file++) {
      String path = "/d" + file / 1000 + "/f" + file;
      long id =
          calls
              .create(
                  path,
                  FsPermission.getFileDefault(),
                  CLIENT,
                  new EnumSetWritable<>(EnumSet.of(CreateFlag.CREATE)),
                  true,
                  (short) REPLICAS,
                  BLOCK_BYTES,
                  CryptoProtocolVersion.supported(),
                  null,
                  null)
              .getFileId();
      ExtendedBlock last = null;
      for (int block = 0; block < Math.min(BLOCKS_PER_FILE, blocks); block++) {
        LocatedBlock located = calls.addBlock(path, CLIENT, last, null, id, null, null);
        last = located.getBlock();
        last.setNumBytes(BLOCK_BYTES);
        for (DatanodeInfo at : located.getLocations()) {
          received(nodes.get(at.getDatanodeUuid()), last.getLocalBlock());
        }
        // The NameNode takes in such reports later; the next block asks for these replicas.
        nameNode.getNamesystem().getBlockManager().flushBlockOps();
      }
      if (!calls.complete(path, CLIENT, last, id)) {
        throw new IOException(path + " is not complete although its replicas are reported");
      }
    }
  }

  private void received(ImaginaryNode node, Block block) throws IOException {
    node.blocks.add(new Block(block));
    var change =
        new ReceivedDeletedBlockInfo(
            new Block(block), ReceivedDeletedBlockInfo.BlockStatus.RECEIVED_BLOCK, null);
    calls.blockReceivedAndDeleted(
        node.registration,
        pool,
        new StorageReceivedDeletedBlocks[] {
          new StorageReceivedDeletedBlocks(node.storage, new ReceivedDeletedBlockInfo[] {change})
        });
  }

  /** Every node reports all it has, {@link #ROUNDS} times. */
  private void report() throws IOException {
    for (int round = 0; round < ROUNDS; round++) {
      double[] took = new double[nodes.size()];
      int next = 0;
      for (ImaginaryNode node : nodes.values()) {
        took[next++] = report(node);
      }
      Arrays.sort(took);
      double sum = Arrays.stream(took).sum();
      say("reports of all nodes", sum);
      say("one report, worst", took[took.length - 1]);
    }
  }

  private double report(ImaginaryNode node) throws IOException {
    BlockListAsLongs.Builder list = BlockListAsLongs.builder();
    for (Block block : node.blocks) {
      list.add(new FinalizedReplica(block, null, null));
    }
    var reports = new StorageBlockReport[] {new StorageBlockReport(node.storage, list.build())};
    long start = System.nanoTime();
    calls.blockReport(
        node.registration, pool, reports, new BlockReportContext(1, 0, System.nanoTime(), 0));
    return (System.nanoTime() - start) / 1e6;
  }

  private void fsck() throws IOException {
    for (int round = 0; round < ROUNDS; round++) {
      Map<String, String[]> asked = new HashMap<>();
      asked.put("path", new String[] {"/"});
      PrintWriter nowhere = new PrintWriter(OutputStream.nullOutputStream());
      var manager = nameNode.getNamesystem().getBlockManager().getDatanodeManager();
      NamenodeFsck fsck =
          new NamenodeFsck(
              conf,
              nameNode,
              manager.getNetworkTopology(),
              asked,
              nowhere,
              nodes.size(),
              InetAddress.getLoopbackAddress());
      long start = System.nanoTime();
      fsck.fsck();
      say("fsck", (System.nanoTime() - start) / 1e6);
    }
  }

  private static void say(String what, double ms) {
    System.out.printf(Locale.ROOT, "%s: %.0f ms%n", what, ms);
  }
}
