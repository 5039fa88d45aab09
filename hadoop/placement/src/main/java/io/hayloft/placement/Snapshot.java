package io.hayloft.placement;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.function.ToLongFunction;

/** Sorts by values that other threads change meanwhile: each is read once. */
final class Snapshot {
  private record Keyed<T>(T item, long key) {}

  private Snapshot() {}

  /** The items by rising key, in a new list; items of equal keys keep their order. */
  static <T> List<T> sorted(Iterable<T> items, ToLongFunction<T> key) {
    List<Keyed<T>> keyed = new ArrayList<>();
    items.forEach(item -> keyed.add(new Keyed<>(item, key.applyAsLong(item))));
    keyed.sort(Comparator.comparingLong(Keyed::key));
    List<T> sorted = new ArrayList<>(keyed.size());
    keyed.forEach(pair -> sorted.add(pair.item()));
    return sorted;
  }
}
