package io.hayloft.pfs.contract;

import io.hayloft.pfs.TestRoot;
import org.apache.hadoop.fs.FSMainOperationsBaseTest;
import org.apache.hadoop.fs.FileSystem;

/** Hadoop's main operations, by FileSystem. */
public class MainOperationsTest extends FSMainOperationsBaseTest {
  @Override
  protected FileSystem createFileSystem() throws Exception {
    return TestRoot.open(TestRoot.of("main-operations"));
  }
}
