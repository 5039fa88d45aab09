package io.hayloft.placement;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** What a run of {@link ScaledCluster} counts. */
final class ScaleTally {
  long blocks;
  /** Blocks whose first node served another writer's first replicas while a node served none. */
  long collisions;
  /** Streams on the busiest node of each pipeline, summed up. */
  long busiest;
  /** Blocks that got fewer targets than they wanted. */
  long tooFew;
  /** Further choices since a target was down. */
  long retries;
  long nodeFailures;
  long hostFailures;
  /** Blocks without a live replica, counted at each failure. */
  long unreadable;
  long copied;
  long deleted;
  /** Blocks with two replicas in a host: after the last write, and when all were copied. */
  long sharedWritten;
  long sharedAtEnd;
  int most;
  int median;
  /** Why our policy's writers left their nodes, and how many it moved. */
  Map<String, Long> moves = Map.of();
  final Times chosen = new Times();
  final Times again = new Times();

  /** Durations, of which any quantile is asked. */
  static final class Times {
    private long[] nanos = new long[1024];
    private int count;

    void add(long ns) {
      if (count == nanos.length) {
        nanos = Arrays.copyOf(nanos, 2 * count);
      }
      nanos[count++] = ns;
    }

    int count() {
      return count;
    }

    double mean() {
      return Arrays.stream(nanos, 0, count).average().orElse(0) / 1e3;
    }

    /** Microseconds that a share of the calls did not exceed. */
    double quantile(double share) {
      long[] sorted = Arrays.copyOf(nanos, count);
      Arrays.sort(sorted);
      return count == 0 ? 0 : sorted[(int) Math.min(count - 1, Math.floor(share * count))] / 1e3;
    }
  }

  /** Figures by name, for the raw data. */
  Map<String, Object> figures() {
    Map<String, Object> all = new LinkedHashMap<>();
    all.put("blocks", blocks);
    all.put("collisions", collisions);
    all.put("busiest_streams", blocks == 0 ? 0 : (double) busiest / blocks);
    all.put("too_few_targets", tooFew);
    all.put("retries", retries);
    all.put("node_failures", nodeFailures);
    all.put("host_failures", hostFailures);
    all.put("unreadable", unreadable);
    all.put("copied", copied);
    all.put("deleted", deleted);
    all.put("shared_host_written", sharedWritten);
    all.put("shared_host_end", sharedAtEnd);
    all.put("replicas_most", most);
    all.put("replicas_median", median);
    all.put("moves", moves);
    all.put("choice_us_mean", chosen.mean());
    all.put("choice_us_p50", chosen.quantile(0.5));
    all.put("choice_us_p99", chosen.quantile(0.99));
    all.put("again_us_mean", again.mean());
    all.put("again_us_p50", again.quantile(0.5));
    return all;
  }
}
