package org.apache.hadoop.hdfs.server.blockmanagement;

import java.util.Collection;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.AddBlockFlag;
import org.apache.hadoop.hdfs.protocol.BlockStoragePolicy;
import org.apache.hadoop.ipc.CallerConnection;
import org.apache.hadoop.net.Node;

/**
 * The methods of Hadoop that are closed to other packages and that this plug-in hooks, looked up
 * once by name: Hadoop may change them in any release.
 */
final class PolicyHooks {
  private PolicyHooks() {}

  /**
   * What the running Hadoop does not have of the hooks.
   *
   * @return null if nothing is missing
   */
  static String missing() {
    return missing(BlockPlacementPolicyDefault.class);
  }

  /** As {@link #missing()}, of a class that stands for the stock policy. */
  static String missing(Class<?> policy) {
    try {
      policy.getDeclaredMethod(
          "chooseTarget",
          String.class,
          int.class,
          Node.class,
          Set.class,
          long.class,
          List.class,
          BlockStoragePolicy.class,
          EnumSet.class);
      policy.getDeclaredMethod(
          "isGoodDatanode",
          DatanodeDescriptor.class,
          int.class,
          boolean.class,
          List.class,
          boolean.class);
      policy.getDeclaredMethod(
          "chooseStorage4Block",
          DatanodeDescriptor.class,
          long.class,
          List.class,
          StorageType.class);
      policy.getDeclaredMethod(
          "useDelHint",
          DatanodeStorageInfo.class,
          DatanodeStorageInfo.class,
          List.class,
          Collection.class,
          List.class);
      BlockPlacementPolicy.NotEnoughReplicasException.class.getDeclaredConstructor(String.class);
      DatanodeStorageInfo.class.getDeclaredMethod("numBlocks");
      DatanodeDescriptor.class.getMethod(
          "chooseStorage4Block", StorageType.class, long.class, int.class);
      return CallerConnection.missing();
    } catch (ReflectiveOperationException | LinkageError e) {
      return e.toString();
    }
  }
}
