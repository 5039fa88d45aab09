package io.hayloft.placement;

import java.util.List;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;

/** What the stock rules say of a node's room for a block of the configured size. */
final class StockRoom implements ClusterIndex.Room {
  private final NodeRules rules;
  private final long blockSize;

  StockRoom(NodeRules rules, long blockSize) {
    this.rules = rules;
    this.blockSize = blockSize;
  }

  @Override
  public int able(DatanodeDescriptor node) {
    boolean acceptable = rules.acceptable(node, false, List.of(), false);
    rules.forgetRefusals();
    int able = 0;
    if (acceptable) {
      for (DatanodeStorageInfo storage : node.getStorageInfos()) {
        int type = 1 << storage.getStorageType().ordinal();
        if ((able & type) == 0
            && rules.hasRoom(node, blockSize, storage.getStorageType())) {
          able |= type;
        }
      }
    }
    return able;
  }

  @Override
  public int held(DatanodeDescriptor node) {
    int held = 0;
    int all = 0;
    for (DatanodeStorageInfo storage : node.getStorageInfos()) {
      int type = 1 << storage.getStorageType().ordinal();
      all |= type;
      held |= rules.holdsBlocks(storage) ? type : 0;
    }
    return held == 0 ? all : held;
  }
}
