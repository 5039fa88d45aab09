package io.hayloft.pfs.contract;

import org.apache.hadoop.fs.FileContextURIBase;
import org.junit.jupiter.api.BeforeEach;

/** Odd names and foreign contexts. */
public class ContextUriTest extends FileContextURIBase {
  @Override
  @BeforeEach
  public void setUp() throws Exception {
    fc1 = Contexts.open("ContextUriTest");
    fc2 = Contexts.open("ContextUriTest");
    super.setUp();
  }
}
