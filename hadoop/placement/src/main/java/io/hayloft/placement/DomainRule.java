package io.hayloft.placement;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/**
 * The rule on failure domains as pure functions of the names of the domains: replicas of a block
 * are in as many domains as there are, and where they must share, as evenly as can be.
 */
final class DomainRule {
  private DomainRule() {}

  static <T> Map<String, Integer> counts(Iterable<T> items, Function<T, String> domain) {
    Map<String, Integer> counts = new HashMap<>();
    items.forEach(item -> counts.merge(domain.apply(item), 1, Integer::sum));
    return counts;
  }

  /**
   * Whether a replica may move from one domain to another: never so that more replicas share a
   * domain than before.
   *
   * @param counts replicas a domain before the move, the source's included, the target's not
   */
  static boolean movable(Map<String, Integer> counts, String source, String target) {
    return source.equals(target)
        || counts.getOrDefault(target, 0) + 1 <= counts.getOrDefault(source, 0);
  }

  /**
   * The candidates for deletion that leave the block in as many domains as before: those of the
   * domains with the most replicas, if any domain has two; all otherwise.
   *
   * @param counts replicas a domain, of all replicas of the block
   */
  static <T> List<T> deletable(
      Map<String, Integer> counts, Collection<T> candidates, Function<T, String> domain) {
    int most = 1;
    for (T candidate : candidates) {
      most = Math.max(most, counts.getOrDefault(domain.apply(candidate), 1));
    }
    List<T> chosen = new ArrayList<>(candidates.size());
    for (T candidate : candidates) {
      if (most == 1 || counts.getOrDefault(domain.apply(candidate), 1) == most) {
        chosen.add(candidate);
      }
    }
    return chosen;
  }
}
