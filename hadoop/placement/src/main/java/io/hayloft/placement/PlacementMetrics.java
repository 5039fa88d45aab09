package io.hayloft.placement;

import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;

/** Counters since the policy started. */
final class PlacementMetrics {
  /** Why a sticky node was given up. */
  enum Left {
    EXCLUDED("excluded by the client"),
    GONE("no longer in the topology"),
    NOT_IN_SERVICE("decommissioning or in maintenance"),
    STALE("stale"),
    SLOW("slow"),
    OVERLOADED("overloaded"),
    FULL("without room or storage of the type");

    private final String text;

    Left(String text) {
      this.text = text;
    }

    String text() {
      return text;
    }
  }

  final LongAdder choices = new LongAdder();
  final LongAdder local = new LongAdder();
  final LongAdder sticky = new LongAdder();
  final LongAdder assigned = new LongAdder();
  final LongAdder takenOver = new LongAdder();
  final LongAdder settled = new LongAdder();
  final LongAdder balanced = new LongAdder();
  final LongAdder expired = new LongAdder();
  final LongAdder clientGone = new LongAdder();
  final LongAdder evicted = new LongAdder();
  final LongAdder sharedDomain = new LongAdder();
  final LongAdder overloadedTaken = new LongAdder();
  final LongAdder rackLimitPassed = new LongAdder();
  final LongAdder tooFew = new LongAdder();
  private final EnumMap<Left, LongAdder> left = new EnumMap<>(Left.class);

  PlacementMetrics() {
    for (Left why : Left.values()) {
      left.put(why, new LongAdder());
    }
  }

  void left(Left why) {
    left.get(why).increment();
  }

  long left() {
    return left.values().stream().mapToLong(LongAdder::sum).sum();
  }

  Map<String, Long> leftByReason() {
    Map<String, Long> map = new LinkedHashMap<>();
    left.forEach((why, count) -> map.put(why.text(), count.sum()));
    return map;
  }
}
