package io.hayloft.pfs.write;

import java.io.IOException;
import java.util.List;

/** What is left to do for a file when its stream has closed it. */
@FunctionalInterface
public interface Finish {
  /** Nothing. */
  Finish NOTHING = complete -> {};

  /** Gets the files that took every byte and closed well, the first among them. */
  void closed(List<Sink> complete) throws IOException;
}
