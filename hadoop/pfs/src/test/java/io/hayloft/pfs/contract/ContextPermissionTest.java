package io.hayloft.pfs.contract;

import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileContextPermissionBase;

/** Permissions and owners by FileContext. */
public class ContextPermissionTest extends FileContextPermissionBase {
  @Override
  protected FileContext getFileContext() throws Exception {
    return Contexts.open("ContextPermissionTest");
  }
}
