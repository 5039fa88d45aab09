package io.hayloft.pfs.io;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Answers that hold for a while, of the keys that were used last. Safe for threads.
 *
 * @param <K> what was asked
 * @param <V> what was answered, not null
 */
public final class Recent<K, V> {
  private record Kept<V>(V value, long untilNs) {}

  private final Map<K, Kept<V>> kept;

  /** Keeps at most {@code most} answers. */
  public Recent(int most) {
    kept =
        new LinkedHashMap<>(16, 0.75f, true) {
          private static final long serialVersionUID = 1;

          @Override
          protected boolean removeEldestEntry(Map.Entry<K, Kept<V>> eldest) {
            return size() > most;
          }
        };
  }

  /** The answer, or null if there is none that still holds. */
  public synchronized V get(K key) {
    Kept<V> known = kept.get(key);
    return known == null || System.nanoTime() - known.untilNs() > 0 ? null : known.value();
  }

  /** Keeps an answer for so long. */
  public synchronized void put(K key, V value, long forNs) {
    kept.put(key, new Kept<>(value, System.nanoTime() + forNs));
  }
}
