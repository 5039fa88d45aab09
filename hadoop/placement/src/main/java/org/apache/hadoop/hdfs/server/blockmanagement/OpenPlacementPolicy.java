package org.apache.hadoop.hdfs.server.blockmanagement;

import java.util.Collection;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.AddBlockFlag;
import org.apache.hadoop.hdfs.protocol.BlockStoragePolicy;
import org.apache.hadoop.net.NetworkTopology;
import org.apache.hadoop.net.Node;

/**
 * Opens the stock policy to classes outside Hadoop's package, and does nothing else.
 *
 * <p>Hadoop declares several hooks of its placement policy package-private, down to a parameter type of
 * {@code initialize}, so a policy that lives elsewhere cannot override them. This class stands in
 * Hadoop's package, passes each hook on under a name of its own, and leaves every decision to its
 * subclass.
 */
public abstract class OpenPlacementPolicy extends BlockPlacementPolicyDefault {

  /** For subclasses; the NameNode calls {@link #initialize} next. */
  protected OpenPlacementPolicy() {}

  @Override
  public final void initialize(
      Configuration conf, FSClusterStats stats, NetworkTopology map, Host2NodesMap hosts) {
    super.initialize(conf, stats, map, hosts);
    String missing = PolicyHooks.missing();
    if (missing != null) {
      stayStock(missing);
      return;
    }
    start(conf, stats, map);
  }

  /**
   * Called in place of {@link #start} if the running Hadoop differs from what this class hooks.
   *
   * @param missing what was looked for in vain
   */
  protected abstract void stayStock(String missing);

  /**
   * The policy's start. Throwing stops the process that loads it, with the exception's message.
   *
   * @param stats the cluster's load; null in tools (Balancer, Mover, fsck), which choose no targets
   */
  protected abstract void start(Configuration conf, FSClusterStats stats, NetworkTopology map);

  @Override
  final DatanodeStorageInfo[] chooseTarget(
      String path,
      int replicas,
      Node writer,
      Set<Node> excluded,
      long blockSize,
      List<DatanodeDescriptor> favored,
      BlockStoragePolicy policy,
      EnumSet<AddBlockFlag> flags) {
    if (favored == null || favored.isEmpty()) {
      // The stock code goes on to the public method, which the subclass answers.
      return super.chooseTarget(
          path, replicas, writer, excluded, blockSize, favored, policy, flags);
    }
    return withFavored(
        () ->
            super.chooseTarget(
                path, replicas, writer, excluded, blockSize, favored, policy, flags));
  }

  /** A choice that the stock code makes from favoured nodes first. */
  @FunctionalInterface
  protected interface FavoredChoice {
    /** Runs the stock code. */
    DatanodeStorageInfo[] run();
  }

  /** Runs a choice with favoured nodes; the subclass may keep notes around it. */
  protected abstract DatanodeStorageInfo[] withFavored(FavoredChoice choice);

  /**
   * Whether the stock rules take {@code node}: in service, not stale (if asked), not slow, and not
   * busy (if asked). The stock limit per rack is not part of it.
   */
  protected final boolean acceptable(
      DatanodeDescriptor node,
      boolean checkLoad,
      List<DatanodeStorageInfo> results,
      boolean avoidStale) {
    return isGoodDatanode(node, Integer.MAX_VALUE, checkLoad, results, avoidStale);
  }

  /**
   * Empties the stock code's notes of this thread, which grow with each node that it refuses until
   * the next choice of its own.
   */
  protected final void forgetRefusals() {
    try {
      chooseRandom(0, "", null, 0, 0, null, false, null);
    } catch (NotEnoughReplicasException e) {
      throw new IllegalStateException("none was asked for", e);
    }
  }

  /**
   * Takes a storage of the type on the node and appends it to the results.
   *
   * @return null if no storage of the type has room
   */
  protected final DatanodeStorageInfo take(
      DatanodeDescriptor node,
      long blockSize,
      List<DatanodeStorageInfo> results,
      StorageType type) {
    return chooseStorage4Block(node, blockSize, results, type);
  }

  /** Whether the storage holds a block, as far as the NameNode knows. */
  protected static boolean holdsBlocks(DatanodeStorageInfo storage) {
    return storage.numBlocks() > 0;
  }

  /** The stock exception for "fewer than asked", whose constructor is closed to others. */
  protected static NotEnoughReplicasException notEnough(String why) {
    return new NotEnoughReplicasException(why);
  }

  @Override
  final boolean useDelHint(
      DatanodeStorageInfo hint,
      DatanodeStorageInfo added,
      List<DatanodeStorageInfo> moreThanOne,
      Collection<DatanodeStorageInfo> exactlyOne,
      List<StorageType> excessTypes) {
    return super.useDelHint(hint, added, moreThanOne, exactlyOne, excessTypes)
        && hintAllowed(hint, added, moreThanOne, exactlyOne);
  }

  /** Whether the replica that a tool proposes may be the one that goes, beyond the stock rules. */
  protected abstract boolean hintAllowed(
      DatanodeStorageInfo hint,
      DatanodeStorageInfo added,
      Collection<DatanodeStorageInfo> moreThanOne,
      Collection<DatanodeStorageInfo> exactlyOne);
}
