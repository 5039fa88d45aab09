package io.hayloft.placement;

import java.util.function.IntPredicate;

/**
 * A place in a ring, for going round it fairly although some stations cannot be served at each
 * stop: those passed over are served first as soon as they can be. Safe for concurrent use.
 */
final class Turn {
  /** Stations passed over that are remembered; beyond that they wait for the next round. */
  private static final int MAX_OWED = 32;

  private long position;
  private final int[] owed = new int[MAX_OWED];
  private int owing;

  Turn(long position) {
    this.position = position;
  }

  /**
   * Offers stations one after the other until one is taken.
   *
   * @param size stations of the ring, which may differ from call to call
   * @param take whether the station is served; called without regard to earlier refusals
   * @return the station that was served, or -1 if none was
   */
  synchronized int next(int size, IntPredicate take) {
    for (int i = 0; i < owing; i++) {
      int station = owed[i];
      if (station >= size) {
        strike(i--);
      } else if (take.test(station)) {
        strike(i);
        return station;
      }
    }
    for (int i = 0; i < size; i++) {
      int station = (int) Math.floorMod(position + i, (long) size);
      if (!isOwed(station) && take.test(station)) {
        for (int passed = 0; passed < i; passed++) {
          owe((int) Math.floorMod(position + passed, (long) size));
        }
        position = station + 1L;
        return station;
      }
    }
    return -1;
  }

  private boolean isOwed(int station) {
    for (int i = 0; i < owing; i++) {
      if (owed[i] == station) {
        return true;
      }
    }
    return false;
  }

  private void owe(int station) {
    if (owing < MAX_OWED && !isOwed(station)) {
      owed[owing++] = station;
    }
  }

  private void strike(int index) {
    System.arraycopy(owed, index + 1, owed, index, owing - index - 1);
    owing--;
  }
}
