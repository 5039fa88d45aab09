package io.hayloft.pfs.layout;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * From the names of a file system's servers to those of the scheduler. The table of {@code
 * fs.pfs.hosts} comes first; an address without an entry gets the name that the host's resolver
 * has for it.
 */
final class HostNames {
  private static final int KNOWN_MAX = 10_000;

  private final Map<String, String> table;
  private final Map<String, String> resolved = new ConcurrentHashMap<>();

  HostNames(String pairs) {
    table = parse(pairs);
  }

  /** Reads {@code SERVER=HOST,SERVER=HOST}. */
  static Map<String, String> parse(String pairs) {
    Map<String, String> table = new HashMap<>();
    for (String pair : pairs.split(",")) {
      if (pair.isBlank()) {
        continue;
      }
      String[] sides = pair.split("=", -1);
      if (sides.length != 2 || sides[0].isBlank() || sides[1].isBlank()) {
        throw new IllegalArgumentException(
            "fs.pfs.hosts must be SERVER=HOST,SERVER=HOST; this part is not: " + pair.trim());
      }
      table.put(sides[0].trim(), sides[1].trim());
    }
    return table;
  }

  String of(String server) {
    String name = table.get(server);
    if (name == null) {
      name = resolved.get(server);
    }
    if (name == null) {
      name = resolve(server);
      if (resolved.size() >= KNOWN_MAX) {
        resolved.clear();
      }
      resolved.put(server, name);
    }
    return name;
  }

  private static String resolve(String server) {
    boolean isAddress = server.indexOf(':') >= 0 || server.matches("[0-9.]+");
    if (!isAddress) {
      return server;
    }
    try {
      return InetAddress.getByName(server).getHostName();
    } catch (UnknownHostException e) {
      return server;
    }
  }
}
