package io.hayloft.placement;

/**
 * What a run of {@link AtScale} simulates.
 *
 * @param policy {@code stock}, {@code fault-tolerant} (stock, with hosts told as racks) or a layout
 * @param local whether the writers run on the nodes' hosts, else on machines of their own
 * @param nodes DataNodes, which are as many as the writers
 * @param replicas of each block
 * @param racks that the hosts stand in; 0 for one rack for each ten hosts
 * @param hours of virtual time; each hour every writer writes one file
 * @param seed of the writers' order and of failures; the policies draw their own chances
 */
record ScaleCase(
    String policy, boolean local, int nodes, int racks, int replicas, int hours, long seed) {
  static final String STOCK = "stock";
  static final String FAULT_TOLERANT = "fault-tolerant";
  static final int NODES_A_HOST = 4;
  static final int HOSTS_A_RACK = 10;
  static final int BLOCKS_A_FILE = 4;

  int hosts() {
    return (nodes + NODES_A_HOST - 1) / NODES_A_HOST;
  }

  /** At least two racks unless fewer are wanted. */
  ScaleCase {
    if (racks == 0) {
      racks = Math.max(2, nodes / NODES_A_HOST / HOSTS_A_RACK);
    }
  }

  int hostOf(int node) {
    return node / NODES_A_HOST;
  }

  /** Where the NameNode is told that a host is. */
  String location(int host) {
    String rack = "/r" + host % racks();
    return policy.equals(FAULT_TOLERANT) ? rack + "-h" + host : rack;
  }
}
