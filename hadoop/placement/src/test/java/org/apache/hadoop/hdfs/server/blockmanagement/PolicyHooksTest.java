package org.apache.hadoop.hdfs.server.blockmanagement;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import org.junit.jupiter.api.Test;

/** What the plug-in hooks in Hadoop is looked for at the start. */
class PolicyHooksTest {
  @Test
  void thisHadoopHasThemAndAnotherClassHasNot() {
    assertNull(PolicyHooks.missing());
    assertNotNull(PolicyHooks.missing(BlockPlacementPolicy.class));
  }
}
