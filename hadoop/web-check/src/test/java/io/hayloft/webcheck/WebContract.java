package io.hayloft.webcheck;

import static org.junit.jupiter.api.Assertions.assertNotNull;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** What WebHDFS promises, and one cluster for all tests of it in this JVM. */
final class WebContract extends AbstractFSContract {
  private static final String SCHEME = System.getProperty("hayloft.web.scheme", "webhdfs");
  private static final boolean SECURE = SCHEME.startsWith("s");
  /** Small, for files of several blocks. */
  private static final int BLOCK_BYTES = 4096;
  private static final String PROMISES = "contract/web.xml";
  private static final int NODES = 2;
  private static MiniDFSCluster cluster;
  private static Configuration site;

  WebContract(Configuration conf) {
    super(conf);
    addConfResource(PROMISES);
    for (var entry : cluster()) {
      getConf().set(entry.getKey(), entry.getValue());
    }
  }

  /** Starts it once, and answers with the configuration of its clients. */
  private static synchronized Configuration cluster() {
    if (site != null) {
      assertNotNull(cluster, "the cluster did not start, as the first test says");
      return site;
    }
    Configuration conf = new HdfsConfiguration();
    site = conf;
    conf.addResource(PROMISES);
    conf.setInt("dfs.blocksize", BLOCK_BYTES);
    try {
      if (SECURE) {
        TlsFiles.make();
        conf.set("dfs.http.policy", "HTTP_AND_HTTPS");
        conf.set("dfs.namenode.https-address", "127.0.0.1:0");
        conf.set("dfs.datanode.https.address", "127.0.0.1:0");
      }
      cluster = new MiniDFSCluster.Builder(conf).numDataNodes(NODES).build();
      cluster.waitClusterUp();
    } catch (IOException failed) {
      throw new UncheckedIOException(failed);
    }
    Runtime.getRuntime().addShutdownHook(new Thread(() -> cluster.shutdown()));
    return site;
  }

  @Override
  public FileSystem getTestFileSystem() throws IOException {
    String key = SECURE ? "dfs.namenode.https-address" : "dfs.namenode.http-address";
    return FileSystem.get(URI.create(SCHEME + "://" + cluster().get(key)), getConf());
  }

  @Override
  public String getScheme() {
    return SCHEME;
  }

  @Override
  public Path getTestPath() {
    return new Path("/test");
  }
}
