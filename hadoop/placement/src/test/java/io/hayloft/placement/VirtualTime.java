package io.hayloft.placement;

import java.util.Comparator;
import java.util.PriorityQueue;

/** Time that passes from event to event. */
final class VirtualTime {
  private record Event(long at, long number, Runnable body) {}

  private final PriorityQueue<Event> events =
      new PriorityQueue<>(Comparator.comparingLong(Event::at).thenComparingLong(Event::number));
  private long now;
  private long number;

  /** Milliseconds since the start. */
  long now() {
    return now;
  }

  /** Has something happen so many milliseconds from now; of two at once, first what came first. */
  void after(long ms, Runnable body) {
    events.add(new Event(now + ms, number++, body));
  }

  /** When the next event is; -1 if there is none. */
  long next() {
    return events.isEmpty() ? -1 : events.peek().at;
  }

  /** Goes on to the next event, which becomes the present, and takes it. */
  Runnable go() {
    Event event = events.poll();
    now = event.at;
    return event.body;
  }
}
