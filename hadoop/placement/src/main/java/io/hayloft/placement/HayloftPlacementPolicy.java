package io.hayloft.placement;

import java.util.ArrayList;
import java.util.Collection;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.AddBlockFlag;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.protocol.BlockStoragePolicy;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.FSClusterStats;
import org.apache.hadoop.net.NetworkTopology;
import org.apache.hadoop.net.Node;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The policy for {@code dfs.block.replicator.classname}: the layouts of {@link Layout} under the
 * rule that no two replicas of a block share a failure domain while another could be had.
 *
 * <p>The stock policy stays in charge of everything around the choice of the next node: placement flags,
 * storage policies and their fallbacks, the second attempt with stale nodes, the order of the
 * pipeline. Its step {@code chooseTargetInOrder} is replaced by {@link Placer}, which asks the
 * stock rules about each node. Checks and deletions are {@link DomainKeepingPolicy}'s, so that
 * stock tools keep what this policy did.
 *
 * <p>Safe for concurrent calls: the NameNode chooses targets without its lock.
 */
public class HayloftPlacementPolicy extends DomainKeepingPolicy {
  private static final Logger REASONS = LoggerFactory.getLogger("io.hayloft.placement.reasons");

  private final ThreadLocal<Call> calls = new ThreadLocal<>();
  private final PlacementMetrics metrics = new PlacementMetrics();
  private Placer placer;
  private Assignments assignments;
  private NodeRules rules;

  /** For Hadoop, which calls {@link #initialize} next. */
  public HayloftPlacementPolicy() {
    this(false);
  }

  HayloftPlacementPolicy(boolean striped) {
    super(striped);
  }

  @Override
  protected void start(Configuration conf, FSClusterStats stats, NetworkTopology map) {
    PlacementConfig config = PlacementConfig.read(conf);
    if (config.layout() == Layout.RANDOM) {
      keep(config, null, null, null);
      if (striped) {
        throw new IllegalArgumentException(
            PlacementKeys.LAYOUT
                + "=random is the stock policy, so "
                + DFSConfigKeys.DFS_BLOCK_PLACEMENT_EC_CLASSNAME_KEY
                + " must not name "
                + getClass().getName()
                + ": remove it.");
      }
      return;
    }
    rules = new StockRules();
    DomainKeepingPolicy running = stats == null ? RunningPolicies.find(map, striped, config) : null;
    if (running != null) {
      // fsck runs in the NameNode: it gives the answers of the policy that places the blocks.
      keep(config, running.domains(), running.view(), running.unplaceable());
    } else {
      long blockSize =
          conf.getLongBytes(
              DFSConfigKeys.DFS_BLOCK_SIZE_KEY, DFSConfigKeys.DFS_BLOCK_SIZE_DEFAULT);
      Domains domains = new Domains(config);
      ClusterView view = new ClusterView(map, domains, new StockRoom(rules, blockSize));
      keep(config, domains, view, new Unplaceable(this::nowMs));
    }
    long staleMs =
        conf.getLong(
            DFSConfigKeys.DFS_NAMENODE_STALE_DATANODE_INTERVAL_KEY,
            DFSConfigKeys.DFS_NAMENODE_STALE_DATANODE_INTERVAL_DEFAULT);
    XceiverLoad load = new XceiverLoad(conf, stats, considerLoad, considerLoadFactor);
    placer = new Placer(config, striped, metrics, this::nowMs, staleMs, load::overloadedByOthers);
    assignments = new Assignments(config.maxAssignments(), this::nowMs, metrics);
    if (stats != null) {
      // Only a NameNode has statistics; tools that load the policy choose nothing.
      RunningPolicies.add(map, this);
      PlacementMBean.register(this, metrics, assignments);
      Ticker.start(this, config.balanceIntervalMs(), HayloftPlacementPolicy::tick);
    }
  }

  /** Milliseconds of a clock that never goes back; tests replace it. */
  long nowMs() {
    return TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
  }

  /** Runs at each interval. */
  void tick() {
    if (domains().check()) {
      view().outdated();
    }
    ClusterIndex index = view().fresh();
    assignments.sweep(config().activeWindowMs(), config().expiryMs());
    assignments.settle();
    new Balance(config().balanceDrift(), rules, metrics)
        .run(assignments.list(), index);
    forgetRefusals();
  }

  Assignments assignments() {
    return assignments;
  }

  PlacementMetrics metrics() {
    return metrics;
  }

  /** The stock code's answers about one node. */
  private final class StockRules implements NodeRules {
    @Override
    public boolean acceptable(
        DatanodeDescriptor node,
        boolean checkLoad,
        List<DatanodeStorageInfo> results,
        boolean avoidStale) {
      return HayloftPlacementPolicy.this.acceptable(
          node, checkLoad && considerLoad, results, avoidStale);
    }

    @Override
    public DatanodeStorageInfo take(
        DatanodeDescriptor node,
        long blockSize,
        List<DatanodeStorageInfo> results,
        StorageType type) {
      return HayloftPlacementPolicy.this.take(node, blockSize, results, type);
    }

    @Override
    public boolean hasRoom(DatanodeDescriptor node, long blockSize, StorageType type) {
      return node.chooseStorage4Block(type, blockSize, getMinBlocksForWrite()) != null;
    }

    @Override
    public boolean holdsBlocks(DatanodeStorageInfo storage) {
      return HayloftPlacementPolicy.holdsBlocks(storage);
    }

    @Override
    public void forgetRefusals() {
      HayloftPlacementPolicy.this.forgetRefusals();
    }
  }

  @Override
  public DatanodeStorageInfo[] chooseTarget(
      String path,
      int replicas,
      Node writer,
      List<DatanodeStorageInfo> chosen,
      boolean returnChosen,
      Set<Node> excluded,
      long blockSize,
      BlockStoragePolicy policy,
      EnumSet<AddBlockFlag> flags) {
    return chooseTarget(
        path, replicas, writer, chosen, returnChosen, excluded, blockSize, policy, flags, null);
  }

  @Override
  public DatanodeStorageInfo[] chooseTarget(
      String path,
      int replicas,
      Node writer,
      List<DatanodeStorageInfo> chosen,
      boolean returnChosen,
      Set<Node> excluded,
      long blockSize,
      BlockStoragePolicy policy,
      EnumSet<AddBlockFlag> flags,
      EnumMap<StorageType, Integer> types) {
    Supplier<DatanodeStorageInfo[]> stock =
        () ->
            super.chooseTarget(
                path, replicas, writer, chosen, returnChosen, excluded, blockSize, policy, flags,
                types == null ? null : new EnumMap<>(types));
    if (isStock()) {
      return stock.get();
    }
    // The choice adds to the set and takes from the map, so each attempt has copies.
    Attempt attempt =
        without -> {
          Set<Node> all = excluded == null ? new HashSet<>() : new HashSet<>(excluded);
          all.addAll(without);
          return super.chooseTarget(
              path, replicas, writer, chosen, returnChosen, all, blockSize, policy, flags,
              types == null ? null : new EnumMap<>(types));
        };
    int wanted = replicas + (returnChosen ? chosen.size() : 0);
    return guard.answer(
        () -> {
          DatanodeStorageInfo[] targets =
              choose(path, flags, policy, wanted, view().restOfRack(writer, flags), attempt);
          if (!returnChosen && replicas > 0) {
            noteVain(chosen, targets);
          }
          return targets;
        },
        stock);
  }

  /** The stock choice without some nodes. */
  @FunctionalInterface
  private interface Attempt {
    DatanodeStorageInfo[] without(Collection<? extends Node> nodes);
  }

  /** Tries what the caller would like, and gives up first what matters least. */
  private DatanodeStorageInfo[] choose(
      String path,
      EnumSet<AddBlockFlag> flags,
      BlockStoragePolicy policy,
      int wanted,
      List<DatanodeDescriptor> avoided,
      Attempt attempt) {
    Call outer = calls.get();
    List<DatanodeStorageInfo> favored = outer == null ? List.of() : outer.favored;
    for (boolean shareAtOnce = false; ; shareAtOnce = true) {
      boolean heldBack = false;
      for (boolean avoid = !avoided.isEmpty(); ; avoid = false) {
        Call call = new Call(path, flags, policy, shareAtOnce, favored, REASONS.isDebugEnabled());
        calls.set(call);
        DatanodeStorageInfo[] targets;
        try {
          targets = attempt.without(avoid ? avoided : List.of());
        } finally {
          calls.set(outer);
          forgetRefusals();
        }
        heldBack |= call.heldBack;
        if (targets.length >= wanted || !avoid && !heldBack) {
          finish(call, targets, wanted - targets.length);
          return targets;
        } else if (!avoid) {
          break;
        }
      }
    }
  }

  private void finish(Call call, DatanodeStorageInfo[] targets, int missing) {
    metrics.choices.increment();
    if (missing > 0) {
      metrics.tooFew.increment();
    }
    if (call.assignment != null) {
      call.assignment.placed(view().get().loads(targets, call.assignment.node()));
    }
    if (REASONS.isDebugEnabled()) {
      REASONS.debug("{}: {}", call.path, call.reasons);
    }
  }

  @Override
  protected DatanodeStorageInfo[] withFavored(FavoredChoice choice) {
    if (isStock()) {
      return choice.run();
    }
    return guard.answer(
        () -> {
          calls.set(new Call(null, null, null, false, new ArrayList<>(), false));
          try {
            return choice.run();
          } finally {
            calls.remove();
          }
        },
        choice::run);
  }

  @Override
  protected void chooseFavouredNodes(
      String path,
      int replicas,
      List<DatanodeDescriptor> favored,
      Set<Node> excluded,
      long blockSize,
      int maxPerRack,
      List<DatanodeStorageInfo> results,
      boolean avoidStale,
      EnumMap<StorageType, Integer> types)
      throws NotEnoughReplicasException {
    if (isStock()) {
      super.chooseFavouredNodes(
          path, replicas, favored, excluded, blockSize, maxPerRack, results, avoidStale, types);
      return;
    }
    // A favoured node that would share a domain waits: it is taken if no other domain is left.
    Set<String> seen = new HashSet<>();
    Map<String, Integer> inRack = new HashMap<>();
    int domainsLeft = view().get().domainsInService;
    for (DatanodeDescriptor node : favored) {
      String rack = domains().rack(node);
      boolean fits = seen.add(domains().domain(node)) || domainsLeft < replicas;
      if (fits && inRack.getOrDefault(rack, 0) < maxPerRack) {
        int before = results.size();
        // The stock limit is one of network locations, which may be hosts; racks are counted here.
        super.chooseFavouredNodes(
            path, replicas, List.of(node), excluded, blockSize, Integer.MAX_VALUE, results,
            avoidStale, types);
        inRack.merge(rack, results.size() - before, Integer::sum);
      }
    }
    calls.get().favored.addAll(results);
  }

  @Override
  protected Node chooseTargetInOrder(
      int replicas,
      Node writer,
      Set<Node> excluded,
      long blockSize,
      int maxPerRack,
      List<DatanodeStorageInfo> results,
      boolean avoidStale,
      boolean newBlock,
      EnumMap<StorageType, Integer> types)
      throws NotEnoughReplicasException {
    if (isStock()) {
      return super.chooseTargetInOrder(
          replicas, writer, excluded, blockSize, maxPerRack, results, avoidStale, newBlock, types);
    }
    Call call = calls.get();
    Choice choice =
        new Choice(
            view(), rules, results, call.favored, excluded, types, blockSize, maxPerRack, avoidStale);
    Set<StorageType> later = call.laterTypes(types, newBlock);
    if (call.shareAtOnce) {
      choice.avoidStale = false;
      choice.anyRack = !newBlock;
    }
    Node localNode = writer;
    int left = replicas;
    if (results.isEmpty()) {
      localNode = first(choice, call, writer, later);
      left--;
    }
    for (; left > 0; left--) {
      if (placer.next(choice, call.assignment, later, call.reasons) == null) {
        throw tooFew(choice, call, left);
      }
    }
    return localNode;
  }

  private Node first(Choice choice, Call call, Node writer, Set<StorageType> later)
      throws NotEnoughReplicasException {
    if (writer instanceof DatanodeDescriptor local && takeLocal(choice, call, local)) {
      return local;
    }
    if (choice.replicas() > 0) {
      // Favoured nodes have the first replicas already.
      if (placer.next(choice, null, later, call.reasons) == null) {
        throw tooFew(choice, call, 1);
      }
      return choice.results.get(0).getDatanodeDescriptor();
    }
    boolean anyWriter =
        call.flags != null && call.flags.contains(AddBlockFlag.IGNORE_CLIENT_LOCALITY);
    if (!striped && !anyWriter && call.path != null) {
      String host =
          writer instanceof DatanodeDescriptor node
              ? node.getIpAddr()
              : writer == null ? "" : writer.getName();
      String rack = writer == null ? null : domains().rackOf(writer.getNetworkLocation());
      call.assignment = assignments.get(Writer.of(host, call.path), rack);
    }
    ClusterIndex.Entry entry = placer.first(choice, call.assignment, later, call.reasons);
    if (entry == null) {
      throw tooFew(choice, call, 1);
    }
    return entry.node;
  }

  /** The stock rule for the writer's own node, unless favoured nodes have its domain or rack. */
  private boolean takeLocal(Choice choice, Call call, DatanodeDescriptor local)
      throws NotEnoughReplicasException {
    if (config().layout() == Layout.ROUND_ROBIN && !striped) {
      return false;
    }
    ClusterIndex.Entry entry = choice.index.find(local);
    if (entry != null && choice.replicas() > 0) {
      boolean shares =
          choice.inDomain(entry.domain) > 0 && choice.index.domainsInService > choice.replicas();
      if (shares || choice.inRack(entry.rack) >= choice.maxPerRack) {
        return false;
      }
    }
    DatanodeStorageInfo storage =
        chooseLocalStorage(
            local,
            choice.excluded,
            choice.blockSize,
            Integer.MAX_VALUE,
            choice.results,
            choice.avoidStale,
            choice.types);
    if (storage == null) {
      return false;
    }
    choice.used(local);
    metrics.local.increment();
    call.reasons.now(local.getXferAddr() + " (the writer's own node)");
    return true;
  }

  private NotEnoughReplicasException tooFew(Choice choice, Call call, int left) {
    call.heldBack = !call.shareAtOnce;
    return notEnough(
        left
            + " more wanted on storage "
            + choice.wantedTypes()
            + ", reasons at debug level of "
            + REASONS.getName());
  }

  @Override
  protected int[] getMaxNodesPerRack(int chosen, int replicas) {
    if (isStock()) {
      return super.getMaxNodesPerRack(chosen, replicas);
    }
    // The stock code forgets the favoured nodes that it has chosen when it asks for the rest.
    Call call = calls.get();
    int present = chosen + (call == null ? 0 : call.favored.size());
    int wanted = Math.max(0, Math.min(replicas, clusterMap.getNumOfLeaves() - present));
    int racks = view().get().racksInService;
    return new int[] {
      wanted, RackLimit.of(present + wanted, racks, striped, config().secondInSameRack())
    };
  }
}
