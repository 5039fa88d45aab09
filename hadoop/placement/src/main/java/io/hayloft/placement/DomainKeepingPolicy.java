package io.hayloft.placement;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.DatanodeInfoWithStorage;
import org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementStatus;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.OpenPlacementPolicy;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What is asked about replicas that are there already: whether they are placed well (fsck,
 * re-replication), whether one may move (Balancer, Mover), and which of too many goes. All by
 * {@link DomainRule}, so that no stock tool undoes what {@link HayloftPlacementPolicy} did. With
 * the layout {@code random} the stock answers.
 */
abstract class DomainKeepingPolicy extends OpenPlacementPolicy {
  private static final Logger LOG = LoggerFactory.getLogger(DomainKeepingPolicy.class);

  /** Whether it places the blocks of erasure-coded groups. */
  final boolean striped;

  final Guard guard = new Guard();

  private PlacementConfig config;
  private Domains domains;
  private ClusterView view;
  private Unplaceable unplaceable;

  DomainKeepingPolicy(boolean striped) {
    this.striped = striped;
  }

  /** Called once, at the start; the last three are null with the layout {@code random}. */
  final void keep(
      PlacementConfig config, Domains domains, ClusterView view, Unplaceable unplaceable) {
    this.config = config;
    this.domains = domains;
    this.view = view;
    this.unplaceable = unplaceable;
  }

  @Override
  protected final void stayStock(String missing) {
    guard.off();
    LOG.error(
        "This Hadoop lacks what the placement plug-in hooks ({}): the stock policy places blocks."
            + " Use a version that the plug-in was built for.",
        missing);
  }

  final PlacementConfig config() {
    return config;
  }

  final Domains domains() {
    return domains;
  }

  final ClusterView view() {
    return view;
  }

  final Unplaceable unplaceable() {
    return unplaceable;
  }

  /** Whether the stock policy answers everything. */
  final boolean isStock() {
    return guard.stock() || config.layout() == Layout.RANDOM;
  }

  /** Hadoop asks this of every block, often under its lock, so it does little where all is well. */
  @Override
  public BlockPlacementStatus verifyBlockPlacement(DatanodeInfo[] nodes, int replicas) {
    if (isStock()) {
      return super.verifyBlockPlacement(nodes, replicas);
    }
    return guard.answer(
        () -> verify(nodes == null ? List.of() : Arrays.asList(nodes), replicas),
        () -> super.verifyBlockPlacement(nodes, replicas));
  }

  private BlockPlacementStatus verify(List<DatanodeInfo> nodes, int replicas) {
    ClusterIndex index = view.known();
    List<String> usedRacks = new ArrayList<>(nodes.size());
    List<String> usedDomains = new ArrayList<>(nodes.size());
    for (DatanodeInfo node : nodes) {
      ClusterIndex.Entry entry = index.find(node.getDatanodeUuid());
      boolean known = entry != null && entry.stamp.fits(node);
      addNew(usedRacks, known ? entry.rack.name : domains.rack(node));
      addNew(usedDomains, known ? entry.domain.name : domains.domain(node));
    }
    int racksWanted =
        striped ? replicas : Placer.racksWanted(replicas, config.secondInSameRack());
    int racksMissing = Math.max(0, racksWanted - usedRacks.size());
    int domainsMissing = Math.max(0, replicas - usedDomains.size());
    if (racksMissing == 0 && domainsMissing == 0) {
      return PlacementVerdict.GOOD;
    }
    // What no node could take is not missing: Hadoop would wait for it for ever.
    int types = types(nodes, index);
    domainsMissing = Math.min(domainsMissing, index.furtherDomains(types, usedDomains));
    racksMissing =
        Math.min(
            racksMissing,
            index.furtherRacks(
                types, racksMissing, usedRacks, domainsMissing > 0 ? usedDomains : null));
    if (racksMissing <= 0 && domainsMissing <= 0
        || unplaceable.contains(Unplaceable.key(nodes))) {
      return PlacementVerdict.GOOD;
    }
    return new PlacementVerdict(racksMissing, domainsMissing, index.domainsInService);
  }

  /** Blocks have few replicas, so a list is quicker than a set. */
  private static void addNew(List<String> names, String name) {
    if (!names.contains(name)) {
      names.add(name);
    }
  }

  /**
   * The storage types that a block on these nodes may be of, as bits. The NameNode does not say
   * which storage of a node holds it (fsck does): it is one that all nodes have, if there is one.
   */
  private static int types(List<DatanodeInfo> nodes, ClusterIndex index) {
    int common = -1;
    int any = 0;
    for (DatanodeInfo node : nodes) {
      int held;
      if (node instanceof DatanodeInfoWithStorage replica && replica.getStorageType() != null) {
        held = 1 << replica.getStorageType().ordinal();
      } else {
        ClusterIndex.Entry entry = index.find(node.getDatanodeUuid());
        held = entry == null ? 0 : entry.held;
      }
      if (held != 0) {
        common &= held;
        any |= held;
      }
    }
    return any == 0 || common == 0 ? any : common;
  }

  @Override
  protected String getRack(DatanodeInfo node) {
    return domains == null || guard.stock() ? super.getRack(node) : domains.rack(node);
  }

  private String domainOf(DatanodeStorageInfo storage) {
    return domains.domain(storage.getDatanodeDescriptor());
  }

  @Override
  public boolean isMovable(
      Collection<DatanodeInfo> nodes, DatanodeInfo source, DatanodeInfo target) {
    if (isStock()) {
      return super.isMovable(nodes, source, target);
    }
    return guard.answer(
        () -> {
          List<DatanodeInfo> before = new ArrayList<>(nodes);
          before.remove(target);
          return super.isMovable(nodes, source, target)
              && DomainRule.movable(
                  DomainRule.counts(before, domains::domain),
                  domains.domain(source),
                  domains.domain(target));
        },
        () -> super.isMovable(nodes, source, target));
  }

  @Override
  public List<DatanodeStorageInfo> chooseReplicasToDelete(
      Collection<DatanodeStorageInfo> available,
      Collection<DatanodeStorageInfo> candidates,
      int expected,
      List<StorageType> excessTypes,
      DatanodeDescriptor added,
      DatanodeDescriptor hint) {
    List<StorageType> typesBefore = List.copyOf(excessTypes);
    return guard.answer(
        () -> {
          List<DatanodeStorageInfo> deleted =
              super.chooseReplicasToDelete(
                  available, candidates, expected, excessTypes, added, hint);
          if (!isStock()) {
            rememberLost(available, deleted);
          }
          return deleted;
        },
        () -> {
          excessTypes.clear();
          excessTypes.addAll(typesBefore);
          return super.chooseReplicasToDelete(
              available, candidates, expected, excessTypes, added, hint);
        });
  }

  /**
   * A block that loses a domain with a replica of a storage type that it should not have must not
   * get the same replica again.
   */
  private void rememberLost(
      Collection<DatanodeStorageInfo> available, List<DatanodeStorageInfo> deleted) {
    if (deleted.isEmpty()) {
      return;
    }
    List<DatanodeStorageInfo> left = new ArrayList<>(available);
    left.removeAll(deleted);
    int after = DomainRule.counts(left, this::domainOf).size();
    if (after < left.size() && after < DomainRule.counts(available, this::domainOf).size()) {
      unplaceable.add(keyOf(left), Unplaceable.DELETED_MS);
    }
  }

  /**
   * Notes that a block cannot be spread any further than it is, if that was found: the NameNode
   * drops targets with which as much is missing as before, and asks again.
   */
  final void noteVain(List<DatanodeStorageInfo> chosen, DatanodeStorageInfo[] targets) {
    if (chosen.isEmpty()) {
      return;
    }
    List<DatanodeInfo> nodes = new ArrayList<>(chosen.size() + targets.length);
    chosen.forEach(storage -> nodes.add(storage.getDatanodeDescriptor()));
    BlockPlacementStatus before = verify(nodes, chosen.size());
    if (before.isPlacementPolicySatisfied()) {
      return;
    }
    for (DatanodeStorageInfo target : targets) {
      nodes.add(target.getDatanodeDescriptor());
    }
    BlockPlacementStatus after = verify(nodes, chosen.size());
    if (!after.isPlacementPolicySatisfied()
        && after.getAdditionalReplicasRequired() >= before.getAdditionalReplicasRequired()) {
      unplaceable.triedInVain(keyOf(chosen));
    }
  }

  private static long keyOf(Collection<DatanodeStorageInfo> replicas) {
    return Unplaceable.key(
        replicas.stream().map(DatanodeStorageInfo::getDatanodeDescriptor).toList());
  }

  @Override
  public DatanodeStorageInfo chooseReplicaToDelete(
      Collection<DatanodeStorageInfo> moreThanOne,
      Collection<DatanodeStorageInfo> exactlyOne,
      List<StorageType> excessTypes,
      Map<String, List<DatanodeStorageInfo>> rackMap) {
    if (isStock()) {
      return super.chooseReplicaToDelete(moreThanOne, exactlyOne, excessTypes, rackMap);
    }
    // Only what may go by its type is compared; else the best by domain could have the wrong type.
    return super.chooseReplicaToDelete(
        ofTypes(moreThanOne, excessTypes), ofTypes(exactlyOne, excessTypes), excessTypes, rackMap);
  }

  private static List<DatanodeStorageInfo> ofTypes(
      Collection<DatanodeStorageInfo> storages, List<StorageType> types) {
    List<DatanodeStorageInfo> kept = new ArrayList<>(storages);
    kept.removeIf(storage -> !types.contains(storage.getStorageType()));
    return kept;
  }

  @Override
  protected Collection<DatanodeStorageInfo> pickupReplicaSet(
      Collection<DatanodeStorageInfo> moreThanOne,
      Collection<DatanodeStorageInfo> exactlyOne,
      Map<String, List<DatanodeStorageInfo>> rackMap) {
    if (isStock()) {
      return super.pickupReplicaSet(moreThanOne, exactlyOne, rackMap);
    }
    List<DatanodeStorageInfo> all = new ArrayList<>();
    rackMap.values().forEach(all::addAll);
    List<DatanodeStorageInfo> candidates = new ArrayList<>(moreThanOne);
    candidates.addAll(exactlyOne);
    Map<String, Integer> counts = DomainRule.counts(all, this::domainOf);
    List<DatanodeStorageInfo> deletable =
        DomainRule.deletable(counts, candidates, this::domainOf);
    if (deletable.size() == candidates.size()) {
      return striped
          ? moreThanOne.isEmpty() ? exactlyOne : moreThanOne
          : super.pickupReplicaSet(moreThanOne, exactlyOne, rackMap);
    }
    List<DatanodeStorageInfo> ofSharedRack = new ArrayList<>(deletable);
    ofSharedRack.retainAll(moreThanOne);
    return ofSharedRack.isEmpty() ? deletable : ofSharedRack;
  }

  @Override
  protected boolean hintAllowed(
      DatanodeStorageInfo hint,
      DatanodeStorageInfo added,
      Collection<DatanodeStorageInfo> moreThanOne,
      Collection<DatanodeStorageInfo> exactlyOne) {
    if (isStock()) {
      return true;
    }
    List<DatanodeStorageInfo> all = new ArrayList<>(moreThanOne);
    all.addAll(exactlyOne);
    return DomainRule.deletable(DomainRule.counts(all, this::domainOf), all, this::domainOf)
        .contains(hint);
  }
}
