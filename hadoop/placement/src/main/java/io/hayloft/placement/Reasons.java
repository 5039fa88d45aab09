package io.hayloft.placement;

import io.hayloft.placement.ClusterIndex.Entry;

/** Collects why each node was chosen; does nothing unless a caller will read it. */
final class Reasons {
  private static final int MAX_CHARS = 4096;
  private static final Reasons OFF = new Reasons(null);
  private final StringBuilder text;

  private Reasons(StringBuilder text) {
    this.text = text;
  }

  static Reasons collect(boolean wanted) {
    return wanted ? new Reasons(new StringBuilder(128)) : OFF;
  }

  Reasons chose(Entry entry, String why) {
    if (text != null) {
      add(entry.node.getXferAddr() + " in " + entry.domain.name + " (" + why + ")");
    }
    return this;
  }

  Reasons now(String what) {
    if (text != null) {
      add(what);
    }
    return this;
  }

  private void add(String what) {
    if (text.length() < MAX_CHARS) {
      text.append(text.length() == 0 ? "" : "; ").append(what);
    }
  }

  @Override
  public String toString() {
    return text == null ? "" : text.toString();
  }
}
