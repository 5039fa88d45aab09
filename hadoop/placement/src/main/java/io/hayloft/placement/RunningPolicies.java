package io.hayloft.placement;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.hadoop.net.NetworkTopology;

/**
 * The policies of the NameNodes of this process, by their topology. {@code fsck} makes policies of
 * its own at each run; with those that run it needs no index of its own, and no file that may be
 * bad by then.
 */
final class RunningPolicies {
  private static final Map<NetworkTopology, List<WeakReference<DomainKeepingPolicy>>> RUNNING =
      new WeakHashMap<>();

  private RunningPolicies() {}

  static synchronized void add(NetworkTopology topology, DomainKeepingPolicy policy) {
    var of = RUNNING.computeIfAbsent(topology, map -> new ArrayList<>());
    of.removeIf(known -> known.get() == null);
    of.add(0, new WeakReference<>(policy));
  }

  /** The newest policy of that configuration; null if there is none. */
  static synchronized DomainKeepingPolicy find(
      NetworkTopology topology, boolean striped, PlacementConfig config) {
    for (WeakReference<DomainKeepingPolicy> known : RUNNING.getOrDefault(topology, List.of())) {
      DomainKeepingPolicy policy = known.get();
      if (policy != null && policy.striped == striped && policy.config().equals(config)) {
        return policy;
      }
    }
    return null;
  }
}
