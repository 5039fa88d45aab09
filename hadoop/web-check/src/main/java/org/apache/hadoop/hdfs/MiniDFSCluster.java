package org.apache.hadoop.hdfs;

import io.hayloft.webcheck.HayloftNode;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.ha.HAServiceProtocol.RequestSource;
import org.apache.hadoop.ha.HAServiceProtocol.StateChangeRequestInfo;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.DatanodeReportType;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.common.HdfsServerConstants.StartupOption;
import org.apache.hadoop.hdfs.server.namenode.EditLogFileOutputStream;
import org.apache.hadoop.hdfs.server.namenode.FSNamesystem;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.apache.hadoop.net.NetUtils;
import org.apache.hadoop.security.authorize.ProxyUsers;
import org.apache.hadoop.util.ExitUtil;

/**
 * Takes the place of Hadoop's class of this name in its own tests: stock NameNodes in this JVM,
 * Hayloft nodes as processes. It has the part that the tests of this module call; a DataNode object
 * is not there.
 */
public class MiniDFSCluster implements AutoCloseable {
  private static final String LOCAL = "127.0.0.1";
  private static final int USUAL_REPLICATION = 3;
  private static final int USUAL_STORAGES = 2;
  private static final long ACTIVE_MS = 60_000;
  private static final long POLL_MS = 50;

  private final Configuration conf;
  private final Path base;
  private final MiniDFSNNTopology topology;
  private final StorageType[][] types;
  private final int storages;
  private final List<NameNodeInfo> nameNodes = new ArrayList<>();
  private final List<HayloftNode> nodes = new ArrayList<>();
  private final Set<FileSystem> opened = new HashSet<>();

  /** What a cluster shall be. */
  public static class Builder {
    private final Configuration conf;
    private int count = 1;
    private int storages = USUAL_STORAGES;
    private StorageType[][] types;
    private MiniDFSNNTopology topology = MiniDFSNNTopology.simpleSingleNN(0, 0);

    public Builder(Configuration conf) {
      this.conf = conf;
    }

    public Builder numDataNodes(int nodes) {
      count = nodes;
      return this;
    }

    public Builder storagesPerDatanode(int volumes) {
      storages = volumes;
      return this;
    }

    /** One row a node. */
    public Builder storageTypes(StorageType[][] rows) {
      types = rows;
      return this;
    }

    /** One name service, of one NameNode or several. */
    public Builder nnTopology(MiniDFSNNTopology wanted) {
      topology = wanted;
      return this;
    }

    /**
     * Starts it.
     *
     * @throws IOException when a server does not start or the cluster is not active in time
     */
    public MiniDFSCluster build() throws IOException {
      MiniDFSCluster cluster = new MiniDFSCluster(this);
      try {
        cluster.start(count);
      } catch (IOException | RuntimeException failed) {
        try {
          cluster.shutdown();
        } catch (AssertionError also) {
          failed.addSuppressed(also);
        }
        throw failed;
      }
      return cluster;
    }
  }

  /** A NameNode, null while it is down, and its configuration. */
  public static class NameNodeInfo {
    public NameNode nameNode;
    final Configuration conf;

    NameNodeInfo(Configuration conf) {
      this.conf = conf;
    }
  }

  private MiniDFSCluster(Builder builder) throws IOException {
    conf = builder.conf;
    topology = builder.topology;
    types = builder.types;
    storages = builder.storages;
    Path scratch = Path.of(System.getProperty("hayloft.web.scratch", "target/scratch"));
    Files.createDirectories(scratch);
    base = Files.createTempDirectory(scratch.toAbsolutePath(), "cluster-");
  }

  private void start(int count) throws IOException {
    // As Hadoop's class does: tests rely on each of these.
    ExitUtil.disableSystemExit();
    FileSystem.enableSymlinks();
    DefaultMetricsSystem.setMiniClusterMode(true);
    EditLogFileOutputStream.setShouldSkipFsyncForTesting(true);
    int replication = Math.min(conf.getInt("dfs.replication", USUAL_REPLICATION), count);
    conf.setInt("dfs.replication", replication);
    conf.setInt("dfs.namenode.maintenance.replication.min", Math.min(1, replication));
    String extension = "dfs.namenode.safemode.extension";
    conf.setInt(extension, conf.getInt(extension + ".testing", 0));
    startNameNodes();
    startNodes(conf, count);
    waitActive();
    ProxyUsers.refreshSuperUserGroupsConfiguration(conf);
  }

  private void startNameNodes() throws IOException {
    if (topology.getNameservices().size() != 1) {
      throw new UnsupportedOperationException("a cluster of several name services");
    }
    var service = topology.getNameservices().get(0);
    var members = service.getNNs();
    boolean several = members.size() > 1;
    if (several) {
      conf.set("dfs.nameservices", service.getId());
      String ids =
          members.stream().map(MiniDFSNNTopology.NNConf::getNnId).collect(Collectors.joining(","));
      conf.set("dfs.ha.namenodes." + service.getId(), ids);
      conf.set("dfs.namenode.shared.edits.dir", base.resolve("shared").toUri().toString());
      conf.setBoolean("dfs.ha.standby.checkpoints", false);
      conf.setInt("dfs.ha.log-roll.period", -1);
      for (var member : members) {
        String of = "." + service.getId() + "." + member.getNnId();
        conf.set("dfs.namenode.rpc-address" + of, LOCAL + ":" + freePort());
        conf.set("dfs.namenode.http-address" + of, LOCAL + ":" + freePort());
      }
    } else {
      conf.set("fs.defaultFS", "hdfs://" + LOCAL + ":0");
      conf.set("dfs.namenode.http-address", LOCAL + ":0");
    }
    for (var member : members) {
      int index = nameNodes.size();
      Configuration own = new Configuration(conf);
      if (several) {
        own.set("dfs.nameservice.id", service.getId());
        own.set("dfs.ha.namenode.id", member.getNnId());
      }
      Path name = base.resolve("name-" + index);
      own.set("dfs.namenode.name.dir", name.toUri().toString());
      own.set("dfs.namenode.checkpoint.dir", base.resolve("checkpoint-" + index).toString());
      if (index == 0) {
        StartupOption.FORMAT.setClusterId("web-check");
        NameNode.format(own);
      } else {
        FileUtil.copy(base.resolve("name-0").toFile(), FileSystem.getLocal(own),
            new org.apache.hadoop.fs.Path(name.toUri()), false, own);
      }
      nameNodes.add(new NameNodeInfo(own));
    }
    for (NameNodeInfo info : nameNodes) {
      startNameNode(info);
    }
    if (!several) {
      conf.set("fs.defaultFS", getURI().toString());
    }
  }

  /** It keeps its ports when it starts again. */
  private void startNameNode(NameNodeInfo info, String... arguments) throws IOException {
    info.nameNode = NameNode.createNameNode(arguments, info.conf);
    if (nameNodes.size() > 1) {
      return;
    }
    info.conf.set("fs.defaultFS", "hdfs://" + text(info.nameNode.getNameNodeAddress()));
    List<Configuration> both = List.of(info.conf, conf);
    both.forEach(c -> set(c, "dfs.namenode.http-address", info.nameNode.getHttpAddress()));
    both.forEach(c -> set(c, "dfs.namenode.https-address", info.nameNode.getHttpsAddress()));
  }

  private static void set(Configuration conf, String key, InetSocketAddress address) {
    if (address != null) {
      conf.set(key, text(address));
    }
  }

  private static String text(InetSocketAddress address) {
    return NetUtils.getHostPortString(address);
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0)) {
      return socket.getLocalPort();
    }
  }

  private void startNodes(Configuration own, int count) throws IOException {
    for (int i = 0; i < count; i++) {
      List<String> names =
          types == null
              ? Collections.nCopies(storages, StorageType.DISK.name())
              : Arrays.stream(types[i]).map(Enum::name).toList();
      nodes.add(new HayloftNode(base.resolve("node-" + nodes.size()), own, names));
    }
  }

  /** Starts more nodes; what belongs to DataNode objects must be null. */
  public void startDataNodes(
      Configuration own,
      int count,
      boolean manageDirs,
      StartupOption option,
      String[] racks,
      String[] hosts,
      long[] capacities,
      boolean hostsFile)
      throws IOException {
    if (option != null || racks != null || hosts != null || capacities != null || hostsFile) {
      throw new UnsupportedOperationException("racks, hosts and simulated capacities");
    }
    Configuration all = new Configuration(own);
    for (String key : List.of("fs.defaultFS", "dfs.namenode.http-address")) {
      all.set(key, conf.get(key));
    }
    startNodes(all, count);
    waitActive();
  }

  /** Returns when NameNodes that run serve, and know all volumes of the nodes that run. */
  public void waitActive() throws IOException {
    long until = System.nanoTime() + ACTIVE_MS * 1_000_000;
    for (NameNodeInfo info : nameNodes) {
      while (info.nameNode != null && !isActive(info.nameNode)) {
        for (HayloftNode node : nodes) {
          node.check();
        }
        if (System.nanoTime() > until) {
          throw new IOException("the cluster is not active after " + ACTIVE_MS + " ms");
        }
        pause();
      }
      if (info.nameNode != null) {
        awaitAnswer(info, until);
      }
    }
  }

  /** A connection to the server before a restart is broken: the first call would fail. */
  private static void awaitAnswer(NameNodeInfo info, long until) throws IOException {
    while (true) {
      try (DFSClient client = new DFSClient(info.nameNode.getNameNodeAddress(), info.conf)) {
        client.datanodeReport(DatanodeReportType.LIVE);
        return;
      } catch (IOException broken) {
        if (System.nanoTime() > until) {
          throw broken;
        }
        pause();
      }
    }
  }

  public void waitClusterUp() throws IOException {
    waitActive();
  }

  private static void pause() throws IOException {
    try {
      Thread.sleep(POLL_MS);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new IOException("interrupted while waiting for the cluster", interrupted);
    }
  }

  private boolean isActive(NameNode nameNode) {
    FSNamesystem names = nameNode.getNamesystem();
    if (names == null || names.isInSafeMode()) {
      return false;
    }
    var manager = names.getBlockManager().getDatanodeManager();
    long ready =
        manager.getDatanodeListForReport(DatanodeReportType.LIVE).stream()
            .filter(MiniDFSCluster::isReported)
            .mapToInt(node -> node.getStorageInfos().length)
            .sum();
    return ready
        >= nodes.stream().filter(HayloftNode::isWanted).mapToInt(HayloftNode::volumes).sum();
  }

  private static boolean isReported(DatanodeDescriptor node) {
    return node.getStorageInfos().length > 0 && node.checkBlockReportReceived();
  }

  public NameNode getNameNode() {
    return getNameNode(0);
  }

  public NameNode getNameNode(int index) {
    return nameNodes.get(index).nameNode;
  }

  public NameNodeInfo[] getNameNodeInfos(int service) {
    return nameNodes.toArray(new NameNodeInfo[0]);
  }

  public FSNamesystem getNamesystem(int index) {
    return getNameNode(index).getNamesystem();
  }

  public Configuration getConfiguration(int index) {
    return nameNodes.get(index).conf;
  }

  public URI getURI() {
    return URI.create("hdfs://" + text(getNameNode().getNameNodeAddress()));
  }

  public String getHttpUri(int index) {
    return "http://" + text(getNameNode(index).getHttpAddress());
  }

  public DistributedFileSystem getFileSystem() throws IOException {
    FileSystem fs = FileSystem.get(getURI(), getConfiguration(0));
    opened.add(fs);
    return (DistributedFileSystem) fs;
  }

  public void transitionToActive(int index) throws IOException {
    getNameNode(index).getRpcServer().transitionToActive(byForce());
  }

  public void transitionToStandby(int index) throws IOException {
    getNameNode(index).getRpcServer().transitionToStandby(byForce());
  }

  private static StateChangeRequestInfo byForce() {
    return new StateChangeRequestInfo(RequestSource.REQUEST_BY_USER_FORCED);
  }

  public void shutdownNameNode(int index) {
    NameNodeInfo info = nameNodes.get(index);
    if (info.nameNode != null) {
      info.nameNode.stop();
      info.nameNode.join();
      info.nameNode = null;
    }
  }

  public void restartNameNode(int index, boolean wait, String... arguments) throws IOException {
    shutdownNameNode(index);
    startNameNode(nameNodes.get(index), arguments);
    if (wait) {
      waitActive();
    }
  }

  public void restartNameNodes() throws IOException {
    for (int i = 0; i < nameNodes.size(); i++) {
      restartNameNode(i, false);
    }
    waitActive();
  }

  public void shutdownDataNode(int index) throws IOException {
    nodes.get(index).stop();
    nodes.get(index).awaitEnd();
  }

  /** Ends it all; a node that ended by itself, or does not end, fails the test. */
  public void shutdown() {
    List<IOException> problems = new ArrayList<>();
    opened.forEach(fs -> attempt(problems, fs::close));
    List<HayloftNode> running = nodes.stream().filter(HayloftNode::isWanted).toList();
    running.forEach(node -> attempt(problems, node::stop));
    running.forEach(node -> attempt(problems, node::awaitEnd));
    for (int i = 0; i < nameNodes.size(); i++) {
      shutdownNameNode(i);
    }
    opened.clear();
    nodes.clear();
    if (ExitUtil.terminateCalled()) {
      problems.add(new IOException("a server wanted to exit", ExitUtil.getFirstExitException()));
      ExitUtil.resetFirstExitException();
    }
    if (!problems.isEmpty()) {
      AssertionError error = new AssertionError(problems.get(0).getMessage());
      problems.forEach(error::addSuppressed);
      throw error;
    }
    FileUtil.fullyDelete(base.toFile());
  }

  @Override
  public void close() {
    shutdown();
  }

  private interface Step {
    void run() throws IOException;
  }

  private static void attempt(List<IOException> problems, Step step) {
    try {
      step.run();
    } catch (IOException problem) {
      problems.add(problem);
    }
  }
}
