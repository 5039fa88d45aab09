package io.hayloft.placement;

import java.util.Random;
import java.util.function.Consumer;

/**
 * Runs a randomised case many times; a failure names the seed, {@code -Dseed=N} runs that one
 * alone.
 */
final class Seeds {
  private Seeds() {}

  static void run(int times, Consumer<Random> test) {
    Long only = Long.getLong("seed");
    long base = only == null ? System.nanoTime() : only;
    System.out.println("seeds from " + base);
    for (int i = 0; i < (only == null ? times : 1); i++) {
      long seed = base + i;
      try {
        test.accept(new Random(seed));
      } catch (Throwable e) {
        throw new AssertionError("fails with -Dseed=" + seed + ": " + e.getMessage(), e);
      }
    }
  }
}
