package io.hayloft.pfs.contract;

import io.hayloft.pfs.PfsKeys;
import io.hayloft.pfs.TestRoot;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** What pfs promises, in contract/pfs.xml, and where the tests of it work. */
public class PfsContract extends AbstractFSContract {
  PfsContract(Configuration conf) {
    super(conf);
    addConfResource("contract/pfs.xml");
    TestRoot.configure(getConf(), TestRoot.of("contract"));
  }

  @Override
  public FileSystem getTestFileSystem() throws IOException {
    return FileSystem.get(TestRoot.PFS, getConf());
  }

  @Override
  public String getScheme() {
    return PfsKeys.SCHEME;
  }

  @Override
  public Path getTestPath() {
    return new Path("/test");
  }
}
