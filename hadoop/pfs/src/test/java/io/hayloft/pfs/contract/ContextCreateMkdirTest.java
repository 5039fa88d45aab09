package io.hayloft.pfs.contract;

import org.apache.hadoop.fs.FileContextCreateMkdirBaseTest;
import org.junit.jupiter.api.BeforeEach;

/** Creating files and directories by FileContext, with and without parents. */
public class ContextCreateMkdirTest extends FileContextCreateMkdirBaseTest {
  @Override
  @BeforeEach
  public void setUp() throws Exception {
    fc = Contexts.open("ContextCreateMkdirTest");
    super.setUp();
  }
}
