package io.hayloft.placement;

/** Where the replicas of a new block go. */
public enum Layout {
  /**
   * First replica local or on the writer's sticky node, the second elsewhere as configured, others
   * spread.
   */
  SPLIT("split"),
  /** All replicas in turn over the failure domains. */
  ROUND_ROBIN("round-robin"),
  /**
   * First replica local or on the writer's sticky node, the others in turn over the failure
   * domains.
   */
  HYBRID("hybrid"),
  /** The stock policy, unchanged; for comparison. */
  RANDOM("random");

  private final String text;

  Layout(String text) {
    this.text = text;
  }

  /** The word in configuration files. */
  public String text() {
    return text;
  }

  /** Whether the first replica has a sticky node. */
  boolean sticky() {
    return this == SPLIT || this == HYBRID;
  }
}
