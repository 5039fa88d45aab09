package io.hayloft.placement;

import io.hayloft.placement.PlacementConfig.DomainSource;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;

/**
 * Names the rack and the failure domain of a node. Pure but for the mapping file, so that NameNode,
 * Balancer, Mover and fsck, each with its own instance, come to the same answer.
 */
final class Domains {
  private final DomainSource source;
  private final WatchedFile<Map<String, String>> file;

  /**
   * Reads the mapping file if there is one; throws {@link IllegalArgumentException} if it is bad.
   */
  Domains(PlacementConfig config) {
    this.source = config.domains();
    this.file =
        config.domainsFile() == null
            ? null
            : new WatchedFile<>(
                config.domainsFile(),
                path -> HostTable.read(path, PlacementKeys.DOMAINS_FILE, value -> value));
  }

  /** Looks at the mapping file; returns whether it has changed. */
  boolean check() {
    return file != null && file.check();
  }

  /** The rack: the network location, without its last level where that names the host. */
  String rack(DatanodeInfo node) {
    return rackOf(node.getNetworkLocation());
  }

  /** The rack of a network location, for clients as well as for nodes. */
  String rackOf(String location) {
    int last = location.lastIndexOf('/');
    return source == DomainSource.TOPOLOGY && last > 0 ? location.substring(0, last) : location;
  }

  /**
   * The failure domain. A node of which the chosen source says nothing is in a domain with the
   * other nodes of its IP address.
   */
  String domain(DatanodeInfo node) {
    String named =
        switch (source) {
          case TOPOLOGY -> {
            String location = node.getNetworkLocation();
            yield location.lastIndexOf('/') > 0 ? location : null;
          }
          case HOST -> null;
          case UPGRADE_DOMAIN -> node.getUpgradeDomain();
          case FILE -> fromFile(node);
        };
    // A name from a source cannot be taken for an address: the prefix keeps them apart.
    return named == null ? "host " + node.getIpAddr() : named;
  }

  /**
   * What the answers about a node depend on besides the file: a node that registers again may come
   * from elsewhere. Cheap enough for each choice.
   */
  static Stamp stamp(DatanodeInfo node) {
    return new Stamp(
        node.getNetworkLocation(),
        node.getIpAddr(),
        node.getHostName(),
        node.getXferPort(),
        node.getUpgradeDomain());
  }

  /** See {@link #stamp}. */
  record Stamp(String location, String ip, String host, int port, String upgradeDomain) {
    /** Whether the node is still the same, without a new stamp. */
    boolean fits(DatanodeInfo node) {
      return location.equals(node.getNetworkLocation())
          && ip.equals(node.getIpAddr())
          && port == node.getXferPort()
          && Objects.equals(host, node.getHostName())
          && Objects.equals(upgradeDomain, node.getUpgradeDomain());
    }
  }

  private String fromFile(DatanodeInfo node) {
    Map<String, String> table = file.get();
    String host = node.getHostName() == null ? "" : node.getHostName().toLowerCase(Locale.ROOT);
    String ip = node.getIpAddr();
    String port = ":" + node.getXferPort();
    for (String name : new String[] {host + port, ip + port, host, ip}) {
      String domain = table.get(name);
      if (domain != null) {
        return domain;
      }
    }
    return null;
  }
}
