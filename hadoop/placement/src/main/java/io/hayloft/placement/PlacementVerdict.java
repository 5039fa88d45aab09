package io.hayloft.placement;

import org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementStatus;

/**
 * The answer of {@code verifyBlockPlacement}.
 *
 * @param racksMissing racks that must still get a replica
 * @param domainsMissing failure domains that must still get a replica
 * @param domainsExisting failure domains in service
 */
record PlacementVerdict(int racksMissing, int domainsMissing, int domainsExisting)
    implements BlockPlacementStatus {
  /** Nothing is missing. */
  static final PlacementVerdict GOOD = new PlacementVerdict(0, 0, 0);

  @Override
  public boolean isPlacementPolicySatisfied() {
    return getAdditionalReplicasRequired() == 0;
  }

  @Override
  public String getErrorDescription() {
    if (isPlacementPolicySatisfied()) {
      return null;
    }
    return String.format(
        "Block should be additionally replicated on %d more rack(s) and in %d more failure domain(s)."
            + " Failure domains in service: %d",
        racksMissing, domainsMissing, domainsExisting);
  }

  @Override
  public int getAdditionalReplicasRequired() {
    return Math.max(racksMissing, domainsMissing);
  }
}
