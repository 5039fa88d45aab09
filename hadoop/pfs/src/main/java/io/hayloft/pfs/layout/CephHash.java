package io.hayloft.pfs.layout;

import java.nio.charset.StandardCharsets;

/**
 * From the name of an object to its placement group, as every client of Ceph computes it: by the
 * hash that Bob Jenkins published in 1996, of 32 bits and with blocks of 12 bytes.
 */
final class CephHash {
  /** Between a namespace and a name. */
  private static final char SEPARATOR = '\037';

  private static final int GOLDEN_RATIO = 0x9e3779b9;
  private static final int BLOCK = 12;

  private int a = GOLDEN_RATIO;
  private int b = GOLDEN_RATIO;
  private int c;

  private CephHash() {}

  /** Of an object in a namespace, which may be empty. */
  static int of(String namespace, String name) {
    String key = namespace.isEmpty() ? name : namespace + SEPARATOR + name;
    return new CephHash().hash(key.getBytes(StandardCharsets.UTF_8));
  }

  /** The number of the group among so many, which need not be a power of two. */
  static int group(int hash, int groups) {
    int mask = groups == 1 ? 0 : (Integer.highestOneBit(groups - 1) << 1) - 1;
    int low = hash & mask;
    return low < groups ? low : hash & (mask >> 1);
  }

  private int hash(byte[] key) {
    int at = 0;
    for (; key.length - at >= BLOCK; at += BLOCK) {
      a += word(key, at);
      b += word(key, at + 4);
      c += word(key, at + 8);
      mix();
    }
    a += word(key, at);
    b += word(key, at + 4);
    // The lowest byte of the third word is that of the length.
    c += key.length + (word(key, at + 8) << 8);
    mix();
    return c;
  }

  /** Four bytes, the lowest first; those beyond the end are 0. */
  private static int word(byte[] key, int at) {
    int word = 0;
    for (int n = 0; n < 4 && at + n < key.length; n++) {
      word |= (key[at + n] & 0xff) << (8 * n);
    }
    return word;
  }

  private void mix() {
    a = (a - b - c) ^ (c >>> 13);
    b = (b - c - a) ^ (a << 8);
    c = (c - a - b) ^ (b >>> 13);
    a = (a - b - c) ^ (c >>> 12);
    b = (b - c - a) ^ (a << 16);
    c = (c - a - b) ^ (b >>> 5);
    a = (a - b - c) ^ (c >>> 3);
    b = (b - c - a) ^ (a << 10);
    c = (c - a - b) ^ (b >>> 15);
  }
}
