package io.hayloft.placement;

/** How many replicas of a block one rack may take. */
final class RackLimit {
  private RackLimit() {}

  /**
   * The stock limits, over racks rather than over network locations (with {@code /rack/host} each
   * host is a location of its own).
   *
   * @param total replicas of the block
   * @param racks racks with a node in service
   * @param striped whether the block is a group, which is spread evenly
   * @param secondInSameRack whether two replicas stay in one rack
   */
  static int of(int total, int racks, boolean striped, boolean secondInSameRack) {
    if (racks <= 1 || total <= 1 || !striped && total == 2 && secondInSameRack) {
      return Math.max(1, total);
    }
    if (striped) {
      return (total + racks - 1) / racks;
    }
    // Room for one more than even, and never all of them in one rack.
    return Math.min((total - 1) / racks + 2, total - 1);
  }
}
