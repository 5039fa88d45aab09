package io.hayloft.pfs.contract;

import io.hayloft.pfs.TestRoot;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileSystemContractBaseTest;
import org.junit.jupiter.api.BeforeEach;

/** What Hadoop expects of every file system, with HDFS's answers. */
public class FileSystemBaseTest extends FileSystemContractBaseTest {
  @BeforeEach
  public void setUp() throws Exception {
    Configuration conf = new Configuration();
    fs = FileSystem.newInstance(
        TestRoot.PFS, TestRoot.configure(conf, TestRoot.of("file-system")));
  }
}
