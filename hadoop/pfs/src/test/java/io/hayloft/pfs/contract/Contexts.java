package io.hayloft.pfs.contract;

import io.hayloft.pfs.TestRoot;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileContext;

/** File contexts over a directory of the tests. */
final class Contexts {
  private Contexts() {}

  static FileContext open(String test) throws Exception {
    Configuration conf = TestRoot.configure(new Configuration(), TestRoot.of(test));
    return FileContext.getFileContext(TestRoot.PFS, conf);
  }
}
