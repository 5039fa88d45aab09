package io.hayloft.pfs.layout;

import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * Which host serves an object of a pool, as the monitors and the manager of Ceph tell it at one
 * time.
 */
final class CephMap {
  /** What {@code ceph} is asked, each answered by a line of JSON. */
  static final String QUESTIONS = "osd pool ls detail\nosd tree\npg dump pgs_brief\n";

  /** Of all pools together: far more than a cluster should have. */
  private static final int GROUPS_MAX = 1 << 20;

  /** Ceph's number for the one hash that new pools have had since 2012. */
  private static final String JENKINS = "2";

  private static final Pattern POOL =
      Pattern.compile(
          "\"pool_id\":(\\d{1,9}),\"pool_name\":\"([^\"\\\\]{1,255})\"[^{}]{0,2000}?"
              + "\"object_hash\":(\\d{1,9})[^{}]{0,500}?\"pg_num\":(\\d{1,9})[^0-9]");
  private static final Pattern HOST =
      Pattern.compile("\"name\":\"([^\"\\\\]{1,255})\",\"type\":\"host\"");
  private static final Pattern CHILDREN = Pattern.compile("\"children\":\\[([-0-9,]*)]");
  private static final Pattern GROUP =
      Pattern.compile(
          "\"pgid\":\"(\\d{1,9})\\.([0-9a-f]{1,7})\"[^{}]{0,2000}?"
              + "\"acting_primary\":(-?\\d{1,9})[^0-9]");

  private final Map<String, Pool> pools = new HashMap<>();

  /** A pool, with the host that serves each of its placement groups; null where none does. */
  private record Pool(int id, String[] hosts) {
    boolean isServed() {
      return Stream.of(hosts).anyMatch(Objects::nonNull);
    }
  }

  private CephMap() {}

  /** Reads the answers; throws when one is missing. */
  static CephMap parse(String output) throws IOException {
    CephMap map = new CephMap();
    String tree = "";
    String groups = "";
    for (String line : output.split("\n")) {
      if (line.contains("\"pool_name\":")) {
        map.readPools(line);
      } else if (line.contains("\"nodes\":[")) {
        tree = line;
      } else if (line.contains("\"acting_primary\":")) {
        groups = line;
      }
    }
    map.readGroups(groups, hostsOfOsds(tree));
    if (map.pools.values().stream().noneMatch(Pool::isServed)) {
      throw new IOException(
          "ceph told of no pool that a host serves; its user needs `mon 'allow r' mgr 'allow r'`,"
              + " and CEPH_ARGS names it: "
              + ToolOutput.shortened(error(output)));
    }
    return map;
  }

  /** The first that a question met, which may stand behind long answers. */
  private static String error(String output) {
    return output.lines().filter(line -> line.startsWith("Error")).findFirst().orElse(output);
  }

  private void readPools(String line) {
    Matcher pool = POOL.matcher(line);
    int left = GROUPS_MAX;
    while (pool.find()) {
      int groups = Integer.parseInt(pool.group(4));
      if (pool.group(3).equals(JENKINS) && groups >= 1 && groups <= left) {
        left -= groups;
        pools.put(pool.group(2), new Pool(Integer.parseInt(pool.group(1)), new String[groups]));
      }
    }
  }

  /** By the tree of CRUSH, where a host has the name of the machine unless told otherwise. */
  private static Map<Integer, String> hostsOfOsds(String tree) {
    Map<Integer, String> hosts = new HashMap<>();
    for (String node : tree.split("\\{\"id\":")) {
      Matcher host = HOST.matcher(node);
      Matcher children = CHILDREN.matcher(node);
      if (host.find() && children.find()) {
        for (String child : children.group(1).split(",")) {
          if (child.matches("\\d{1,9}")) {
            hosts.put(Integer.parseInt(child), host.group(1));
          }
        }
      }
    }
    return hosts;
  }

  private void readGroups(String line, Map<Integer, String> hosts) {
    Map<Integer, Pool> byId = new HashMap<>();
    pools.values().forEach(pool -> byId.put(pool.id(), pool));
    Matcher group = GROUP.matcher(line);
    while (group.find()) {
      Pool pool = byId.get(Integer.parseInt(group.group(1)));
      int number = Integer.parseInt(group.group(2), 16);
      if (pool != null && number < pool.hosts().length) {
        pool.hosts()[number] = hosts.get(Integer.parseInt(group.group(3)));
      }
    }
  }

  boolean knows(String pool) {
    return pools.containsKey(pool);
  }

  /**
   * The host that serves an object, or none. Readers get every byte from the first of a group's
   * OSDs: the others have it, too, and no reader is nearer to its data for that.
   */
  List<String> servers(String pool, String namespace, String object) {
    Pool known = pools.get(pool);
    if (known == null) {
      return List.of();
    }
    int group = CephHash.group(CephHash.of(namespace, object), known.hosts().length);
    String host = known.hosts()[group];
    return host == null ? List.of() : List.of(host);
  }
}
