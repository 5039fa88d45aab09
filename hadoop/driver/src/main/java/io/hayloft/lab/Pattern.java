package io.hayloft.lab;

/**
 * Test data as a pure function of a seed and a file offset, the same as in the lab's pattern.rs.
 */
final class Pattern {
  private Pattern() {
  }

  private static long word(long seed, long index) {
    long z = seed + (index + 1) * 0x9E3779B97F4A7C15L;
    z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
    z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
    return z ^ (z >>> 31);
  }

  private static byte at(long seed, long offset) {
    return (byte) (word(seed, offset / 8) >>> (8 * (int) (offset % 8)));
  }

  /** Fills {@code length} bytes of {@code out} with the pattern from {@code offset} on. */
  static void fill(long seed, long offset, byte[] out, int length) {
    int i = 0;
    while (i < length) {
      long position = offset + i;
      if (position % 8 != 0 || length - i < 8) {
        out[i++] = at(seed, position);
        continue;
      }
      long word = word(seed, position / 8);
      for (int b = 0; b < 8; b++) {
        out[i++] = (byte) (word >>> (8 * b));
      }
    }
  }

  /** Index of the first of {@code length} bytes that differs from the pattern, or -1. */
  static int firstDifference(long seed, long offset, byte[] data, int length, byte[] scratch) {
    fill(seed, offset, scratch, length);
    return java.util.Arrays.mismatch(data, 0, length, scratch, 0, length);
  }
}
