package io.hayloft.placement;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;

/** Where the replicas of a simulated cluster are, by the numbers of blocks and nodes. */
final class PlacedBlocks {
  /** Nodes of each block, dead ones too: their replicas count again when they come back. */
  private final List<int[]> blocks = new ArrayList<>();
  /** Replicas of each node. */
  final int[] held;
  /** Nodes that the NameNode takes for dead. */
  final boolean[] dead;

  PlacedBlocks(int nodes) {
    held = new int[nodes];
    dead = new boolean[nodes];
  }

  int add(int[] nodes) {
    Arrays.stream(nodes).forEach(n -> held[n]++);
    blocks.add(nodes.clone());
    return blocks.size() - 1;
  }

  void addReplica(int block, int node) {
    int[] old = blocks.get(block);
    int[] with = Arrays.copyOf(old, old.length + 1);
    with[old.length] = node;
    blocks.set(block, with);
    held[node]++;
  }

  void remove(int block, Set<Integer> nodes) {
    nodes.forEach(n -> held[n]--);
    int[] left = Arrays.stream(blocks.get(block)).filter(n -> !nodes.contains(n)).toArray();
    blocks.set(block, left);
  }

  int[] all(int block) {
    return blocks.get(block);
  }

  int[] live(int block) {
    return Arrays.stream(blocks.get(block)).filter(n -> !dead[n]).toArray();
  }

  /** Blocks with a replica on one of these nodes. */
  IntStream on(int[] which) {
    boolean[] wanted = new boolean[held.length];
    Arrays.stream(which).forEach(n -> wanted[n] = true);
    // A loop: a failure looks through a million blocks.
    IntStream.Builder found = IntStream.builder();
    for (int b = 0; b < blocks.size(); b++) {
      for (int n : blocks.get(b)) {
        if (wanted[n]) {
          found.add(b);
          break;
        }
      }
    }
    return found.build();
  }

  /** Blocks with two live replicas in one host. */
  long sharingHost(ScaleCase of) {
    long count = 0;
    for (int[] nodes : blocks) {
      count += sharesHost(nodes, of) ? 1 : 0;
    }
    return count;
  }

  private boolean sharesHost(int[] nodes, ScaleCase of) {
    for (int i = 0; i < nodes.length; i++) {
      for (int j = 0; j < i; j++) {
        if (of.hostOf(nodes[i]) == of.hostOf(nodes[j]) && !dead[nodes[i]] && !dead[nodes[j]]) {
          return true;
        }
      }
    }
    return false;
  }
}
