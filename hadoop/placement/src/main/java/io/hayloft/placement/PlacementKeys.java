package io.hayloft.placement;

/** The configuration keys of the plug-in, each described in docs/operate/placement.md. */
public final class PlacementKeys {
  /**
   * What every key of the policies begins with; others with this prefix are refused as misspelt.
   */
  public static final String PREFIX = "hayloft.placement.";

  /**
   * {@code split}, {@code round-robin}, {@code hybrid} or {@code random}; default {@code split}.
   */
  public static final String LAYOUT = PREFIX + "layout";

  /**
   * {@code topology}, {@code host}, {@code upgrade-domain} or {@code file}; default {@code file}
   * with {@link #DOMAINS_FILE}, else {@code topology}.
   */
  public static final String DOMAINS = PREFIX + "domains";

  /** Path of the mapping file; not with another source than {@code file}. */
  public static final String DOMAINS_FILE = PREFIX + "domains.file";

  /**
   * {@code other-rack} or {@code same-rack}; default {@code other-rack}; layout {@code split} only.
   */
  public static final String SECOND_REPLICA = PREFIX + "second-replica";

  /** Time after its last block within which a writer counts as active; default 60 s. */
  public static final String ACTIVE_WINDOW = PREFIX + "active-window";

  /** Time after its last block until a writer's node is forgotten; default 10 min. */
  public static final String EXPIRY = PREFIX + "assignment.expiry";

  /** The most assignments kept, the least recently used give way; default 65,536. */
  public static final String MAX_ASSIGNMENTS = PREFIX + "assignments.max";

  /** Time between two runs of the balancing thread; default 5 s. */
  public static final String BALANCE_INTERVAL = PREFIX + "balance.interval";

  /** Writers that a node may have more than another before one is moved; default 1. */
  public static final String BALANCE_DRIFT = PREFIX + "balance.drift";

  /** Path of the topology file of {@link FileTopologyMapping}. */
  public static final String TOPOLOGY_FILE = "hayloft.topology.file";

  /** Rack of nodes that the topology file does not name; default {@code /default-rack}. */
  public static final String TOPOLOGY_DEFAULT = "hayloft.topology.default";

  /** Time between two looks at the topology file; default 5 s. */
  public static final String TOPOLOGY_INTERVAL = "hayloft.topology.check.interval";

  private PlacementKeys() {}
}
