package io.hayloft.placement;

/**
 * The policy for {@code dfs.block.placement.ec.classname}: the blocks of a group are spread evenly
 * over racks, then over failure domains, and share a domain only if the group has more blocks than
 * there are domains. It reads the same keys as {@link HayloftPlacementPolicy}.
 */
public final class HayloftEcPlacementPolicy extends HayloftPlacementPolicy {
  /** For Hadoop, which calls {@link #initialize} next. */
  public HayloftEcPlacementPolicy() {
    super(true);
  }
}
