package io.hayloft.pfs.read;

import java.util.Locale;

/** How a caller means to read a file; it may say so in {@code openFile()}. */
public enum ReadPolicy {
  /** Reads ahead once two reads followed each other. */
  ADAPTIVE,
  /** Reads ahead from the first byte. */
  SEQUENTIAL,
  /** Never reads ahead. */
  RANDOM;

  /** The first policy of a list that is known here; ADAPTIVE if none is. */
  public static ReadPolicy of(String names) {
    for (String name : names.trim().toLowerCase(Locale.ROOT).split("\\s*,\\s*")) {
      switch (name) {
        case "adaptive":
        case "default":
          return ADAPTIVE;
        case "avro":
        case "csv":
        case "json":
        case "sequential":
        case "whole-file":
          return SEQUENTIAL;
        case "columnar":
        case "hbase":
        case "orc":
        case "parquet":
        case "random":
        case "vector":
          return RANDOM;
        default:
          // A later name of the list may be known.
      }
    }
    return ADAPTIVE;
  }
}
