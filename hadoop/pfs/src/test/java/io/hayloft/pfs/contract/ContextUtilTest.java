package io.hayloft.pfs.contract;

import org.apache.hadoop.fs.FileContextUtilBase;
import org.junit.jupiter.api.BeforeEach;

/** Copies of trees by FileContext. */
public class ContextUtilTest extends FileContextUtilBase {
  @Override
  @BeforeEach
  public void setUp() throws Exception {
    fc = Contexts.open("ContextUtilTest");
    super.setUp();
  }
}
