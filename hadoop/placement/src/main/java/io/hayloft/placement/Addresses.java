package io.hayloft.placement;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Looks host names up and keeps the last good answer of each. A name server that is silent for a
 * while must not move hosts to another rack. Used by one thread at a time.
 */
class Addresses {
  private static final Logger LOG = LoggerFactory.getLogger(Addresses.class);

  private final Map<String, String> lastGood = new HashMap<>();
  private final Set<String> silent = new HashSet<>();

  /** The address of a name or of an address; null if there never was one. Blocks on the network. */
  final String of(String host) {
    try {
      String address = lookUp(host);
      lastGood.put(host, address);
      if (silent.remove(host)) {
        LOG.info("{} of the topology file has an address now: {}", host, address);
      }
      return address;
    } catch (UnknownHostException e) {
      String before = lastGood.get(host);
      if (silent.add(host)) {
        LOG.warn(
            before == null
                ? "{} of the topology file has no address, so its nodes stand in the default rack."
                    + " It is looked up again; write its address into the file to be safe."
                : "{} of the topology file has no address any more: its last one stands, {}.",
            host,
            before);
      }
      return before;
    }
  }

  /** Whether the name had no address at the last look-up. */
  final boolean isSilent(String host) {
    return silent.contains(host);
  }

  /** Asks the system; tests answer instead. */
  String lookUp(String host) throws UnknownHostException {
    return InetAddress.getByName(host).getHostAddress();
  }
}
