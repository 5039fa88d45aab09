package io.hayloft.placement;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.net.CachedDNSToSwitchMapping;
import org.apache.hadoop.net.NodeBase;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The mapping for {@code net.topology.node.switch.mapping.impl}: a text file gives {@code
 * /rack/host} (or {@code /rack}) for each host name or address. The file is read at the start,
 * where an error stops the process with one sentence, and again when it changes, where an error
 * leaves the last good mapping.
 *
 * <p>It extends the cached mapping for one reason: the NameNode then asks for DataNodes by address, as it
 * does for clients, whatever host name they report. It caches nothing; a look-up is one in a map.
 */
public final class FileTopologyMapping extends CachedDNSToSwitchMapping {
  private static final Logger LOG = LoggerFactory.getLogger(FileTopologyMapping.class);
  /** Levels of a location: more than a data centre has is a mistake in the file. */
  private static final int MAX_LEVELS = 8;
  /** Unknown hosts that the log names, each once. */
  private static final int MAX_UNKNOWN = 100;

  private volatile WatchedFile<Table> file;
  private volatile String defaultRack = "/default-rack";
  private final Addresses addresses;
  private final Set<String> unknown = ConcurrentHashMap.newKeySet();

  /**
   * What the file says, host names also under their addresses.
   *
   * @param unresolved names to be looked up again, with their locations
   */
  private record Table(
      Map<String, String> locations, Map<String, String> unresolved, int levels) {}

  /** For Hadoop, which calls {@link #setConf} next. */
  public FileTopologyMapping() {
    this(new Addresses());
  }

  FileTopologyMapping(Addresses addresses) {
    super(null);
    this.addresses = addresses;
  }

  /**
   * Reads the file and watches it from then on.
   *
   * @throws IllegalArgumentException with one sentence if a key or the file is not as it should be
   */
  @Override
  public void setConf(Configuration conf) {
    super.setConf(conf);
    if (conf == null) {
      return;
    }
    String path = conf.getTrimmed(PlacementKeys.TOPOLOGY_FILE, "");
    if (path.isEmpty()) {
      throw new IllegalArgumentException(
          getClass().getName() + " needs the topology file's path in " + PlacementKeys.TOPOLOGY_FILE + ".");
    }
    String rack = conf.getTrimmed(PlacementKeys.TOPOLOGY_DEFAULT, "/default-rack");
    try {
      location(rack);
    } catch (IllegalArgumentException e) {
      throw new IllegalArgumentException(
          String.format("%s %s.", PlacementKeys.TOPOLOGY_DEFAULT, e.getMessage()), e);
    }
    long interval = PlacementConfig.millis(conf, PlacementKeys.TOPOLOGY_INTERVAL, 5_000);
    defaultRack = rack;
    file = new WatchedFile<>(Path.of(path), found -> sameDepth(found, read(found, rack)));
    Ticker.start(this, interval, FileTopologyMapping::check);
  }

  /**
   * Looks at the file now, and looks names up again that had no address; returns whether the file
   * said something new.
   */
  boolean check() {
    if (file.check()) {
      return true;
    }
    if (!file.get().unresolved.isEmpty()) {
      file.update(
          table -> {
            Map<String, String> all = new HashMap<>(table.locations);
            return new Table(all, addAddresses(table.unresolved, all), table.levels);
          });
    }
    return false;
  }

  /** Registered nodes keep the depth of the first file, and the topology takes no other. */
  private Table sameDepth(Path path, Table table) {
    WatchedFile<Table> known = file;
    if (known != null && known.get().levels != table.levels) {
      throw new IllegalArgumentException(
          String.format(
              "The locations of %s have %d levels now and had %d: that takes a restart.",
              path, table.levels, known.get().levels));
    }
    return table;
  }

  private Table read(Path path, String defaultRack) {
    Map<String, String> named =
        HostTable.read(path, PlacementKeys.TOPOLOGY_FILE, FileTopologyMapping::location);
    int levels = levels(path, named, defaultRack);
    Map<String, String> all = new HashMap<>(named);
    return new Table(all, addAddresses(named, all), levels);
  }

  /**
   * Adds the addresses of hosts to {@code all}. Names are looked up here, in a thread of our own,
   * and never while the NameNode waits.
   *
   * @return hosts to be looked up again, with their locations
   */
  private Map<String, String> addAddresses(Map<String, String> hosts, Map<String, String> all) {
    Map<String, String> unresolved = new HashMap<>();
    hosts.forEach(
        (host, location) -> {
          String address = addresses.of(host);
          if (addresses.isSilent(host)) {
            unresolved.put(host, location);
          }
          if (address == null) {
            return;
          }
          String before = all.putIfAbsent(address, location);
          if (before != null && !before.equals(location)) {
            LOG.warn(
                "{} has the address {}, which the topology file places in {}: that stands, not {}",
                host, address, before, location);
          }
        });
    return unresolved;
  }

  /** All nodes of a NameNode's topology must be equally deep, or it refuses to register some. */
  private static int levels(Path path, Map<String, String> named, String defaultRack) {
    String first = null;
    for (Map.Entry<String, String> entry : named.entrySet()) {
      if (first == null) {
        first = entry.getKey();
      } else if (depth(entry.getValue()) != depth(named.get(first))) {
        throw new IllegalArgumentException(
            String.format(
                "The file %s places %s at %s and %s at %s: all locations must have the same number of levels.",
                path, first, named.get(first), entry.getKey(), entry.getValue()));
      }
    }
    int levels = first == null ? depth(defaultRack) + 1 : depth(named.get(first));
    int missing = levels - depth(defaultRack);
    if (missing != 0 && missing != 1) {
      throw new IllegalArgumentException(
          String.format(
              "%s is %s, but the locations of %s have %d levels: give it %d or %d.",
              PlacementKeys.TOPOLOGY_DEFAULT, defaultRack, path, levels, Math.max(1, levels - 1), levels));
    }
    return levels;
  }

  private static int depth(String location) {
    return (int) location.chars().filter(c -> c == NodeBase.PATH_SEPARATOR).count();
  }

  /** Checks a location; the message of a refusal continues "Line 3 of FILE ...". */
  private static String location(String text) {
    if (!text.startsWith("/") || text.endsWith("/") || text.contains("//")) {
      throw new IllegalArgumentException(
          "has the location '" + text + "' where one such as /rack1/host1 is expected");
    }
    if (depth(text) > MAX_LEVELS) {
      throw new IllegalArgumentException(
          "has a location of " + depth(text) + " levels; the limit is " + MAX_LEVELS);
    }
    return text;
  }

  @Override
  public List<String> resolve(List<String> names) {
    Table table = file.get();
    List<String> locations = new ArrayList<>(names.size());
    for (String name : names) {
      String location = table.locations.get(name.toLowerCase(Locale.ROOT));
      locations.add(location == null ? unknown(name, table.levels) : location);
    }
    return locations;
  }

  /** An unknown node is a host of its own in the default rack. */
  private String unknown(String name, int levels) {
    if (unknown.size() < MAX_UNKNOWN && unknown.add(name)) {
      LOG.warn(
          "The topology file does not name {}: it stands in {}, which counts as a rack of its own."
              + " Add it to the file, and restart it if it is a DataNode.",
          name,
          defaultRack);
    }
    // A slash cannot stand in a level's name; addresses and host names have none.
    return depth(defaultRack) == levels
        ? defaultRack
        : defaultRack + NodeBase.PATH_SEPARATOR_STR + name.replace('/', '_');
  }

  @Override
  public void reloadCachedMappings() {
    check();
  }

  @Override
  public void reloadCachedMappings(List<String> names) {
    check();
  }

  @Override
  public Map<String, String> getSwitchMap() {
    return new HashMap<>(file.get().locations);
  }

  @Override
  public boolean isSingleSwitch() {
    return false;
  }

  @Override
  public String toString() {
    return "topology file mapping";
  }
}
