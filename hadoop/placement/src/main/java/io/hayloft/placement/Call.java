package io.hayloft.placement;

import java.util.Arrays;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.AddBlockFlag;
import org.apache.hadoop.hdfs.protocol.BlockStoragePolicy;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;

/** One choice of targets: what the stock code does not pass on to {@code chooseTargetInOrder}. */
final class Call {
  final String path;
  final EnumSet<AddBlockFlag> flags;
  final BlockStoragePolicy policy;
  final boolean shareAtOnce;
  final List<DatanodeStorageInfo> favored;
  final Reasons reasons;
  Assignment assignment;
  boolean heldBack;

  Call(
      String path,
      EnumSet<AddBlockFlag> flags,
      BlockStoragePolicy policy,
      boolean shareAtOnce,
      List<DatanodeStorageInfo> favored,
      boolean withReasons) {
    this.path = path;
    this.flags = flags;
    this.policy = policy;
    this.shareAtOnce = shareAtOnce;
    this.favored = favored;
    this.reasons = Reasons.collect(withReasons);
  }

  /**
   * The types that are tried before two replicas share a domain: for a new block also those that
   * the stock code turns to. A copy on such a type would be the first to be deleted, and then made
   * again.
   */
  Set<StorageType> laterTypes(EnumMap<StorageType, Integer> types, boolean newBlock) {
    if (shareAtOnce || !newBlock) {
      return types.keySet();
    }
    Set<StorageType> all = EnumSet.noneOf(StorageType.class);
    all.addAll(types.keySet());
    all.addAll(Arrays.asList(policy.getCreationFallbacks()));
    return all;
  }
}
