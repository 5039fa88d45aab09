package io.hayloft.placement;

import java.util.List;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;

/** What the stock policy says of a single node; see {@code OpenPlacementPolicy}. */
interface NodeRules {
  /**
   * In service, not stale (if asked), not slow, not busy (if asked and if {@code considerLoad} is
   * on).
   */
  boolean acceptable(
      DatanodeDescriptor node,
      boolean checkLoad,
      List<DatanodeStorageInfo> results,
      boolean avoidStale);

  /** Takes a storage and appends it to the results; null if there is none with room. */
  DatanodeStorageInfo take(
      DatanodeDescriptor node,
      long blockSize,
      List<DatanodeStorageInfo> results,
      StorageType type);

  /** Whether {@link #take} would succeed. */
  boolean hasRoom(DatanodeDescriptor node, long blockSize, StorageType type);

  /** Whether the storage holds a block, as far as the NameNode knows. */
  boolean holdsBlocks(DatanodeStorageInfo storage);

  /** Empties what the stock code notes of this thread for each node that it refuses. */
  void forgetRefusals();
}
