package io.hayloft.pfs.copies;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;

/** Which servers get the copies of a file; the first is that of the file itself. */
public enum CopyLayout {
  /** Any servers. */
  RANDOM,
  /** One server after the other. */
  ROUND_ROBIN,
  /** The writer's own server, then one after the other. */
  HYBRID;

  /** Where the round of this layout stands; processes start at different servers. */
  private final AtomicInteger round =
      new AtomicInteger(ThreadLocalRandom.current().nextInt(1 << 20));

  static CopyLayout of(String name) {
    try {
      return valueOf(name.trim().toUpperCase(Locale.ROOT).replace('-', '_'));
    } catch (IllegalArgumentException e) {
      throw new IllegalArgumentException(
          "a layout of copies is random, round-robin or hybrid, not " + name, e);
    }
  }

  /** {@code count} different targets. */
  List<Target> choose(List<Target> targets, int count, String localHost) {
    if (count > targets.size()) {
      throw new IllegalArgumentException(
          count + " copies need as many servers, and fs.pfs.targets has " + targets.size());
    }
    List<Target> chosen = new ArrayList<>(targets);
    if (this == RANDOM) {
      Collections.shuffle(chosen, ThreadLocalRandom.current());
      return List.copyOf(chosen.subList(0, count));
    }
    Optional<Target> own =
        targets.stream()
            .filter(target -> this == HYBRID && target.host().equals(localHost))
            .findFirst();
    own.ifPresent(chosen::remove);
    if (!chosen.isEmpty()) {
      // One server further for each file: a larger step could leave some servers out.
      Collections.rotate(chosen, -Math.floorMod(round.getAndIncrement(), chosen.size()));
    }
    own.ifPresent(first -> chosen.add(0, first));
    return List.copyOf(chosen.subList(0, count));
  }
}
