package io.hayloft.pfs.contract;

import org.apache.hadoop.fs.FileContextMainOperationsBaseTest;
import org.junit.jupiter.api.BeforeEach;

/** Hadoop's main operations, by FileContext. */
public class ContextMainOperationsTest extends FileContextMainOperationsBaseTest {
  @Override
  @BeforeEach
  public void setUp() throws Exception {
    fc = Contexts.open("ContextMainOperationsTest");
    super.setUp();
  }

  @Override
  protected boolean listCorruptedBlocksSupported() {
    return false;
  }
}
