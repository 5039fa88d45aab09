package io.hayloft.placement;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementStatus;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;
import org.apache.hadoop.hdfs.server.blockmanagement.OpenPlacementPolicy;

/**
 * What is asked about replicas that are there already: whether they are placed well (fsck,
 * re-replication), whether one may move (Balancer, Mover), and which of too many goes. All by
 * {@link DomainRule}, so that no stock tool undoes what {@link HayloftPlacementPolicy} did. With
 * the layout {@code random} the stock answers.
 */
abstract class DomainKeepingPolicy extends OpenPlacementPolicy {
  /** Whether it places the blocks of erasure-coded groups. */
  final boolean striped;

  private PlacementConfig config;
  private Domains domains;
  private ClusterView view;

  DomainKeepingPolicy(boolean striped) {
    this.striped = striped;
  }

  /** Called once, at the start; the last two are null with the layout {@code random}. */
  final void keep(PlacementConfig config, Domains domains, ClusterView view) {
    this.config = config;
    this.domains = domains;
    this.view = view;
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

  /** Whether the stock policy answers everything. */
  final boolean isStock() {
    return config.layout() == Layout.RANDOM;
  }

  @Override
  public BlockPlacementStatus verifyBlockPlacement(DatanodeInfo[] nodes, int replicas) {
    if (isStock()) {
      return super.verifyBlockPlacement(nodes, replicas);
    }
    ClusterIndex index = view.get();
    Set<String> usedRacks = new HashSet<>();
    Set<String> usedDomains = new HashSet<>();
    if (nodes != null) {
      for (DatanodeInfo node : nodes) {
        usedRacks.add(domains.rack(node));
        usedDomains.add(domains.domain(node));
      }
    }
    int racksWanted =
        striped ? replicas : Placer.racksWanted(replicas, config.secondInSameRack());
    int racksMissing =
        index.racksInService < 2
            ? 0
            : DomainRule.missing(usedRacks.size(), racksWanted, index.racksInService);
    int domainsMissing =
        DomainRule.missing(usedDomains.size(), replicas, index.domainsInService);
    return new PlacementVerdict(racksMissing, domainsMissing, index.domainsInService);
  }

  @Override
  protected String getRack(DatanodeInfo node) {
    return domains == null ? super.getRack(node) : domains.rack(node);
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
    List<DatanodeInfo> before = new ArrayList<>(nodes);
    before.remove(target);
    return super.isMovable(nodes, source, target)
        && DomainRule.movable(
            DomainRule.counts(before, domains::domain),
            domains.domain(source),
            domains.domain(target));
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
