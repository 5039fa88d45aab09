package io.hayloft.placement;

import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.server.blockmanagement.CombinedHostFileManager;

/**
 * The policies' configuration, read once and checked as a whole.
 *
 * @param layout where replicas go
 * @param domains where failure domains come from
 * @param domainsFile the mapping file; null unless {@code domains} is {@code FILE}
 * @param secondInSameRack whether the second replica stays in the first one's rack
 * @param activeWindowMs milliseconds that a writer counts as active after its last block
 * @param expiryMs milliseconds until an unused assignment is forgotten
 * @param maxAssignments the most assignments kept
 * @param balanceIntervalMs milliseconds between two runs of the balancing thread
 * @param balanceDrift difference in writers between two nodes that is left alone
 */
public record PlacementConfig(
    Layout layout,
    DomainSource domains,
    Path domainsFile,
    boolean secondInSameRack,
    long activeWindowMs,
    long expiryMs,
    int maxAssignments,
    long balanceIntervalMs,
    int balanceDrift) {

  /** Where failure domains come from. */
  public enum DomainSource {
    /** The last level of {@code /rack/host}; with one level only, as {@link #HOST}. */
    TOPOLOGY("topology"),
    /** All nodes of one IP address. */
    HOST("host"),
    /** The upgrade domains of the combined hosts file. */
    UPGRADE_DOMAIN("upgrade-domain"),
    /** A mapping file. */
    FILE("file");

    private final String text;

    DomainSource(String text) {
      this.text = text;
    }

    /** The word in configuration files. */
    public String text() {
      return text;
    }
  }

  private static final Set<String> KNOWN =
      Set.of(
          PlacementKeys.LAYOUT,
          PlacementKeys.DOMAINS,
          PlacementKeys.DOMAINS_FILE,
          PlacementKeys.SECOND_REPLICA,
          PlacementKeys.ACTIVE_WINDOW,
          PlacementKeys.EXPIRY,
          PlacementKeys.MAX_ASSIGNMENTS,
          PlacementKeys.BALANCE_INTERVAL,
          PlacementKeys.BALANCE_DRIFT);

  private static final int LIMIT_ASSIGNMENTS = 10_000_000;

  /**
   * Reads and checks all keys.
   *
   * @throws IllegalArgumentException with one sentence that names the key, what is wrong and what
   *     is right
   */
  public static PlacementConfig read(Configuration conf) {
    refuseMisspelt(conf);
    Layout layout = layout(conf);
    refuseForOtherLayouts(conf, layout);
    DomainSource domains = domains(conf);
    PlacementConfig config =
        new PlacementConfig(
            layout,
            domains,
            domainsFile(conf, domains),
            sameRack(conf),
            millis(conf, PlacementKeys.ACTIVE_WINDOW, 60_000),
            millis(conf, PlacementKeys.EXPIRY, 600_000),
            number(conf, PlacementKeys.MAX_ASSIGNMENTS, 65_536, 1, LIMIT_ASSIGNMENTS),
            millis(conf, PlacementKeys.BALANCE_INTERVAL, 5_000),
            number(conf, PlacementKeys.BALANCE_DRIFT, 1, 1, 1_000_000));
    if (config.activeWindowMs > config.expiryMs) {
      throw new IllegalArgumentException(
          String.format(
              "%s (%d ms) is longer than %s (%d ms): a writer cannot be active after it is forgotten.",
              PlacementKeys.ACTIVE_WINDOW,
              config.activeWindowMs,
              PlacementKeys.EXPIRY,
              config.expiryMs));
    }
    return config;
  }

  private static void refuseMisspelt(Configuration conf) {
    for (Map.Entry<String, String> entry : conf) {
      String key = entry.getKey();
      if (key.startsWith(PlacementKeys.PREFIX) && !KNOWN.contains(key)) {
        throw new IllegalArgumentException(
            "Unknown key " + key + ": the keys are " + String.join(", ", new TreeSet<>(KNOWN)) + ".");
      }
    }
  }

  /** A key that the layout would ignore is a misunderstanding, so it is refused. */
  private static void refuseForOtherLayouts(Configuration conf, Layout layout) {
    if (layout != Layout.SPLIT) {
      refuse(conf, layout, PlacementKeys.SECOND_REPLICA, "belongs to the layout split only");
    }
    if (layout == Layout.RANDOM) {
      String why = "has no meaning there, since that layout is the stock policy, which knows no failure domains";
      refuse(conf, layout, PlacementKeys.DOMAINS, why);
      refuse(conf, layout, PlacementKeys.DOMAINS_FILE, why);
    }
  }

  private static void refuse(Configuration conf, Layout layout, String key, String why) {
    if (text(conf, key, null) != null) {
      throw new IllegalArgumentException(
          String.format(
              "%s is set together with %s=%s, but it %s: remove one of them.",
              key, PlacementKeys.LAYOUT, layout.text(), why));
    }
  }

  private static Layout layout(Configuration conf) {
    String text = text(conf, PlacementKeys.LAYOUT, Layout.SPLIT.text());
    for (Layout layout : Layout.values()) {
      if (layout.text().equals(text)) {
        return layout;
      }
    }
    throw new IllegalArgumentException(
        String.format(
            "%s is '%s': use split, round-robin, hybrid or random.", PlacementKeys.LAYOUT, text));
  }

  private static DomainSource domains(Configuration conf) {
    // A file alone says enough.
    DomainSource usual =
        text(conf, PlacementKeys.DOMAINS_FILE, null) == null
            ? DomainSource.TOPOLOGY
            : DomainSource.FILE;
    String text = text(conf, PlacementKeys.DOMAINS, usual.text());
    for (DomainSource source : DomainSource.values()) {
      if (source.text().equals(text)) {
        refuseUnusableUpgradeDomains(conf, source);
        return source;
      }
    }
    throw new IllegalArgumentException(
        String.format(
            "%s is '%s': use topology, host, upgrade-domain or file.", PlacementKeys.DOMAINS, text));
  }

  private static void refuseUnusableUpgradeDomains(Configuration conf, DomainSource source) {
    if (source != DomainSource.UPGRADE_DOMAIN) {
      return;
    }
    String key = DFSConfigKeys.DFS_NAMENODE_HOSTS_PROVIDER_CLASSNAME_KEY;
    String provider = conf.get(key, "HostFileManager");
    if (provider.endsWith(".HostFileManager") || provider.equals("HostFileManager")) {
      throw new IllegalArgumentException(
          String.format(
              "%s=upgrade-domain needs a hosts file with upgrade domains: set %s to %s.",
              PlacementKeys.DOMAINS, key, CombinedHostFileManager.class.getName()));
    }
  }

  private static Path domainsFile(Configuration conf, DomainSource domains) {
    String file = text(conf, PlacementKeys.DOMAINS_FILE, null);
    if (domains == DomainSource.FILE && file == null) {
      throw new IllegalArgumentException(
          String.format(
              "%s=file needs the file's path in %s.",
              PlacementKeys.DOMAINS, PlacementKeys.DOMAINS_FILE));
    }
    if (domains != DomainSource.FILE && file != null) {
      throw new IllegalArgumentException(
          String.format(
              "%s is set, but %s is %s, which does not use it: set %s=file or remove the path.",
              PlacementKeys.DOMAINS_FILE, PlacementKeys.DOMAINS, domains.text(), PlacementKeys.DOMAINS));
    }
    return file == null ? null : Path.of(file);
  }

  private static boolean sameRack(Configuration conf) {
    String text = text(conf, PlacementKeys.SECOND_REPLICA, "other-rack");
    return switch (text) {
      case "same-rack" -> true;
      case "other-rack" -> false;
      default ->
          throw new IllegalArgumentException(
              String.format(
                  "%s is '%s': use other-rack or same-rack.", PlacementKeys.SECOND_REPLICA, text));
    };
  }

  /** A duration, {@code 30s} or plain milliseconds; at least one millisecond, at most ten years. */
  static long millis(Configuration conf, String key, long usual) {
    long value;
    try {
      value = conf.getTimeDuration(key, usual, TimeUnit.MILLISECONDS);
    } catch (NumberFormatException e) {
      throw new IllegalArgumentException(
          String.format(
              "%s is '%s': use a time such as 30s or 500ms.", key, text(conf, key, "")), e);
    }
    if (value < 1 || value > TimeUnit.DAYS.toMillis(3650)) {
      throw new IllegalArgumentException(
          String.format("%s is %d ms: use a time between 1ms and 3650d.", key, value));
    }
    return value;
  }

  private static int number(Configuration conf, String key, int usual, int least, int most) {
    int value;
    try {
      value = conf.getInt(key, usual);
    } catch (NumberFormatException e) {
      throw new IllegalArgumentException(
          String.format(
              "%s is '%s': use a whole number from %d to %d.", key, text(conf, key, ""), least, most),
          e);
    }
    if (value < least || value > most) {
      throw new IllegalArgumentException(
          String.format("%s is %d: use a whole number from %d to %d.", key, value, least, most));
    }
    return value;
  }

  private static String text(Configuration conf, String key, String usual) {
    String value = conf.getTrimmed(key);
    return value == null || value.isEmpty() ? usual : value;
  }
}
