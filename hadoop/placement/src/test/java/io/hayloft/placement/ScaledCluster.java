package io.hayloft.placement;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.IntStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementPolicy;
import org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementPolicyDefault;
import org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementPolicyRackFaultTolerant;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.FakeCluster;
import org.apache.hadoop.ipc.FakeCaller;
import org.apache.hadoop.net.Node;
import org.apache.hadoop.util.ReflectionUtils;

/**
 * A cluster in virtual time under the classes of a NameNode: its topology, its descriptors and the
 * placement policy's own class. Writers write a file each hour, all at once; nodes and hosts fail
 * and come back; what misses a replica is copied, what has too many is deleted, as the policy says.
 */
final class ScaledCluster {
  /** Milliseconds of a block whose nodes serve no other. */
  private static final long BLOCK_MS = 4_000;
  private static final long HEARTBEAT_MS = 3_000;
  private static final long TICK_MS = 5_000;
  private static final long HOUR_MS = 3_600_000;
  /** Until the NameNode takes a silent node for dead. */
  private static final long DEAD_MS = 630_000;
  private static final long DOWN_MS = 2 * HOUR_MS;
  /** A node fails every 30 days, a host every 20. */
  private static final double NODE_MS = 30.0 * 24 * HOUR_MS;
  private static final double HOST_MS = 20.0 * 24 * HOUR_MS;
  /** Blocks that a NameNode gives each node to copy in a round. */
  private static final int COPIES_A_ROUND = 2;
  private static final int ATTEMPTS = 5;
  private static final long CAPACITY = 1_000;
  /** Longer than a run takes: descriptors keep the time of the real clock. */
  private static final long STALE_MS = 1_000_000_000L;

  private final ScaleCase of;
  private final Random random;
  /** Of failures, which are the same under every policy. */
  private final Random failures;
  private final FakeCluster cluster = new FakeCluster();
  private final BlockPlacementPolicy policy;
  private final DatanodeDescriptor[] nodes;
  private final Map<DatanodeDescriptor, Integer> numbers = new HashMap<>();
  private final boolean[] down;
  private final int[] streams;
  private final int[] firsts;
  private final PlacedBlocks placed;
  private int busyFirsts;
  private final Set<Integer> changed = new LinkedHashSet<>();
  private final FakeCaller[] callers;
  private final Node[] clients;
  private final ArrayDeque<Integer> urgent = new ArrayDeque<>();
  private final ArrayDeque<Integer> missing = new ArrayDeque<>();
  private final VirtualTime time = new VirtualTime();
  private final ScaleTally tally = new ScaleTally();
  private int writing;

  ScaledCluster(ScaleCase of) {
    this.of = of;
    random = new Random(of.seed());
    failures = new Random(~of.seed());
    nodes = new DatanodeDescriptor[of.nodes()];
    down = new boolean[of.nodes()];
    streams = new int[of.nodes()];
    firsts = new int[of.nodes()];
    placed = new PlacedBlocks(of.nodes());
    for (int n = 0; n < nodes.length; n++) {
      int host = of.hostOf(n);
      nodes[n] = cluster.add(of.location(host), address(10, host), 9866 + 10 * n);
      numbers.put(nodes[n], n);
    }
    policy = policy();
    callers = new FakeCaller[of.nodes()];
    clients = new Node[of.nodes()];
    for (int c = 0; c < clients.length; c++) {
      callers[c] = new FakeCaller(c);
      clients[c] = FakeCluster.client("/r" + c % of.racks(), address(11, c));
    }
  }

  private static String address(int net, int host) {
    return net + "." + (host >> 16) + "." + (host >> 8 & 255) + "." + (host & 255);
  }

  private BlockPlacementPolicy policy() {
    Configuration conf = TestPolicy.conf();
    conf.setLong(DFSConfigKeys.DFS_NAMENODE_STALE_DATANODE_INTERVAL_KEY, STALE_MS);
    return switch (of.policy()) {
      case ScaleCase.STOCK ->
          cluster.start(ReflectionUtils.newInstance(BlockPlacementPolicyDefault.class, conf), conf);
      case ScaleCase.FAULT_TOLERANT ->
          cluster.start(
              ReflectionUtils.newInstance(BlockPlacementPolicyRackFaultTolerant.class, conf), conf);
      default -> {
        conf.set(PlacementKeys.LAYOUT, of.policy());
        yield cluster.start(new TestPolicy(), conf);
      }
    };
  }

  private long exponential(double mean) {
    return (long) (-mean * Math.log(1 - failures.nextDouble()));
  }

  /** Lives through all hours, until nothing misses a replica. */
  ScaleTally run() {
    for (int hour = 0; hour < of.hours(); hour++) {
      time.after(hour * HOUR_MS, this::startWriters);
    }
    long end = of.hours() * HOUR_MS;
    time.after(exponential(NODE_MS / nodes.length), this::nodeFails);
    time.after(exponential(HOST_MS / of.hosts()), this::hostFails);
    while (time.next() >= 0 && (time.next() <= end || busy())) {
      Runnable body = time.go();
      if (policy instanceof TestPolicy ours) {
        ours.nowMs = 1_000_000 + time.now();
      }
      body.run();
    }
    if (policy instanceof TestPolicy ours) {
      tally.moves = new TreeMap<>(ours.metrics().leftByReason());
      tally.moves.put("balanced", ours.metrics().balanced.sum());
    }
    tally.sharedAtEnd = placed.sharingHost(of);
    int[] sorted = placed.held.clone();
    Arrays.sort(sorted);
    tally.most = sorted[sorted.length - 1];
    tally.median = sorted[sorted.length / 2];
    return tally;
  }

  private boolean ended() {
    return time.now() > of.hours() * HOUR_MS;
  }

  private boolean busy() {
    return writing > 0 || !urgent.isEmpty() || !missing.isEmpty() || !allBack();
  }

  private boolean allBack() {
    for (int n = 0; n < nodes.length; n++) {
      if (down[n]) {
        return false;
      }
    }
    return true;
  }

  /** Every writer begins a file within ten seconds. */
  private void startWriters() {
    boolean idle = writing == 0;
    for (int c = 0; c < clients.length; c++) {
      int client = c;
      String path = "/data/" + time.now() / HOUR_MS + "/part-" + c;
      writing++;
      time.after(random.nextInt(10_000), () -> write(client, path, ScaleCase.BLOCKS_A_FILE));
    }
    if (idle) {
      beat();
      tick();
    }
  }

  /** What changed is told by heartbeats, while writers write. */
  private void beat() {
    for (int n : changed) {
      if (!down[n]) {
        cluster.heartbeat(nodes[n], (CAPACITY - placed.held[n]) * FakeCluster.BLOCK, streams[n]);
      }
    }
    changed.clear();
    if (writing > 0) {
      time.after(HEARTBEAT_MS, this::beat);
    }
  }

  private void tick() {
    if (policy instanceof TestPolicy ours) {
      ours.tick();
    }
    if (writing > 0) {
      time.after(TICK_MS, this::tick);
    }
  }

  private void write(int client, String path, int left) {
    if (left == 0) {
      writing--;
      if (writing == 0) {
        beat();
        tally.sharedWritten = placed.sharingHost(of);
      }
      return;
    }
    int[] targets = targets(client, path);
    if (targets.length < of.replicas()) {
      tally.tooFew++;
    }
    if (targets.length == 0) {
      time.after(BLOCK_MS, () -> write(client, path, left - 1));
      return;
    }
    tally.blocks++;
    int first = targets[0];
    if (firsts[first] > 0 && busyFirsts < cluster.nodes.size()) {
      tally.collisions++;
    }
    busyFirsts += firsts[first]++ == 0 ? 1 : 0;
    int busiest = 0;
    for (int n : targets) {
      busiest = Math.max(busiest, ++streams[n]);
      cluster.schedule(nodes[n], 1);
      changed.add(n);
    }
    tally.busiest += busiest;
    // Each node serves as many streams as blocks have replicas when all are served alike.
    long ms = BLOCK_MS * Math.max(of.replicas(), busiest) / of.replicas();
    time.after(ms, () -> written(client, path, left, targets));
  }

  private void written(int client, String path, int left, int[] targets) {
    busyFirsts -= --firsts[targets[0]] == 0 ? 1 : 0;
    int block = placed.add(targets);
    boolean lacks = targets.length < of.replicas();
    for (int n : targets) {
      streams[n]--;
      cluster.unschedule(nodes[n], 1);
      changed.add(n);
      lacks |= placed.dead[n];
    }
    if (lacks) {
      wants(block);
    }
    write(client, path, left - 1);
  }

  /** Asks the policy for a new block; a client that finds a target down asks again without it. */
  private int[] targets(int client, String path) {
    Set<Node> excluded = new HashSet<>();
    for (int attempt = 0; ; attempt++) {
      Node writer = of.local() ? localNode(client) : clients[client];
      DatanodeStorageInfo[] found =
          callers[client].call(
              () -> {
                long start = System.nanoTime();
                DatanodeStorageInfo[] chosen =
                    FakeCluster.newBlock(
                        policy, path, of.replicas(), writer, new HashSet<>(excluded), null,
                        FakeCluster.hot(), null);
                tally.chosen.add(System.nanoTime() - start);
                return chosen;
              });
      int[] chosen = numbers(found);
      boolean alive = true;
      for (int n : chosen) {
        if (down[n]) {
          alive = false;
          excluded.add(nodes[n]);
        }
      }
      if (alive || attempt == ATTEMPTS) {
        return alive ? chosen : new int[0];
      }
      tally.retries++;
    }
  }

  /** A node of the writer's host, as the NameNode finds one for an address. */
  private Node localNode(int client) {
    int first = of.hostOf(client) * ScaleCase.NODES_A_HOST;
    int last = Math.min(nodes.length, first + ScaleCase.NODES_A_HOST);
    int node = first + random.nextInt(last - first);
    return placed.dead[node] ? clients[client] : nodes[node];
  }

  private int[] numbers(DatanodeStorageInfo[] storages) {
    return Arrays.stream(storages).mapToInt(s -> numbers.get(s.getDatanodeDescriptor())).toArray();
  }

  private void nodeFails() {
    if (!ended()) {
      tally.nodeFailures++;
      fail(new int[] {failures.nextInt(nodes.length)});
      time.after(exponential(NODE_MS / nodes.length), this::nodeFails);
    }
  }

  private void hostFails() {
    if (!ended()) {
      tally.hostFailures++;
      int first = failures.nextInt(of.hosts()) * ScaleCase.NODES_A_HOST;
      int last = Math.min(nodes.length, first + ScaleCase.NODES_A_HOST);
      fail(IntStream.range(first, last).toArray());
      time.after(exponential(HOST_MS / of.hosts()), this::hostFails);
    }
  }

  private void fail(int[] which) {
    int[] fallen = Arrays.stream(which).filter(n -> !down[n]).toArray();
    for (int n : fallen) {
      down[n] = true;
      cluster.silent(nodes[n], 2 * STALE_MS);
    }
    tally.unreadable +=
        placed.on(fallen).filter(b -> IntStream.of(placed.all(b)).allMatch(n -> down[n])).count();
    time.after(DEAD_MS, () -> declareDead(fallen));
    time.after(DOWN_MS, () -> comeBack(fallen));
  }

  private void declareDead(int[] which) {
    for (int n : which) {
      placed.dead[n] = true;
      cluster.remove(nodes[n]);
    }
    placed.on(which).forEach(this::wants);
  }

  private void wants(int block) {
    int live = placed.live(block).length;
    if (live > 0 && live < of.replicas()) {
      boolean idle = urgent.isEmpty() && missing.isEmpty();
      (live == 1 ? urgent : missing).add(block);
      if (idle) {
        time.after(HEARTBEAT_MS, this::copy);
      }
    }
  }

  /** A round of the NameNode's redundancy monitor. */
  private void copy() {
    int round = COPIES_A_ROUND * cluster.nodes.size();
    for (int i = 0; i < round && !(urgent.isEmpty() && missing.isEmpty()); i++) {
      int block = urgent.isEmpty() ? missing.poll() : urgent.poll();
      int[] live = placed.live(block);
      if (live.length == 0 || live.length >= of.replicas()) {
        continue;
      }
      List<DatanodeStorageInfo> existing = storages(live);
      long start = System.nanoTime();
      DatanodeStorageInfo[] more =
          FakeCluster.again(policy, of.replicas() - live.length, existing);
      tally.again.add(System.nanoTime() - start);
      for (int n : numbers(more)) {
        // A copy to a node that is down fails, and the block waits for the next failure's round.
        if (!down[n]) {
          placed.addReplica(block, n);
          changed.add(n);
          tally.copied++;
        }
      }
    }
    if (writing == 0) {
      beat();
    }
    if (!urgent.isEmpty() || !missing.isEmpty()) {
      time.after(HEARTBEAT_MS, this::copy);
    }
  }

  private List<DatanodeStorageInfo> storages(int[] which) {
    List<DatanodeStorageInfo> storages = new ArrayList<>();
    for (int n : which) {
      storages.add(nodes[n].getStorageInfos()[0]);
    }
    return storages;
  }

  private void comeBack(int[] which) {
    for (int n : which) {
      down[n] = false;
      if (placed.dead[n]) {
        placed.dead[n] = false;
        cluster.restore(nodes[n]);
      }
      cluster.heartbeat(nodes[n], (CAPACITY - placed.held[n]) * FakeCluster.BLOCK, streams[n]);
    }
    placed.on(which).forEach(b -> {
      if (placed.live(b).length > of.replicas()) {
        trim(b);
      } else {
        wants(b);
      }
    });
  }

  /** Deletes what the policy chooses, until the block has as many replicas as it wants. */
  private void trim(int block) {
    int[] live = placed.live(block);
    Set<Integer> gone = new HashSet<>();
    for (DatanodeStorageInfo s : FakeCluster.surplus(policy, of.replicas(), storages(live))) {
      int n = numbers.get(s.getDatanodeDescriptor());
      gone.add(n);
      changed.add(n);
      tally.deleted++;
    }
    placed.remove(block, gone);
  }
}
