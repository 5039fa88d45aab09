package io.hayloft.placement;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.ref.WeakReference;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.management.JMException;
import javax.management.ObjectName;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The bean behind {@link PlacementMXBean}. The newest policy of a process has the name. */
final class PlacementMBean implements PlacementMXBean {
  static final String NAME = "Hadoop:service=NameNode,name=HayloftPlacement";
  static final String EC_NAME = "Hadoop:service=NameNode,name=HayloftEcPlacement";
  private static final Logger LOG = LoggerFactory.getLogger(PlacementMBean.class);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int MAX_LISTED = 1_000;

  private final PlacementConfig config;
  private final PlacementMetrics metrics;
  /** Weak, since the platform's bean server would keep a replaced policy for ever. */
  private final WeakReference<Assignments> assignments;

  private final WeakReference<ClusterView> view;

  private final Guard guard;

  private PlacementMBean(
      DomainKeepingPolicy policy, PlacementMetrics metrics, Assignments assignments) {
    this.config = policy.config();
    this.guard = policy.guard;
    this.metrics = metrics;
    this.assignments = new WeakReference<>(assignments);
    this.view = new WeakReference<>(policy.view());
  }

  /** Registers the bean in place of an earlier one; a failure is logged and does no harm. */
  static synchronized void register(
      DomainKeepingPolicy policy, PlacementMetrics metrics, Assignments assignments) {
    var server = java.lang.management.ManagementFactory.getPlatformMBeanServer();
    try {
      ObjectName name = new ObjectName(policy.striped ? EC_NAME : NAME);
      if (server.isRegistered(name)) {
        server.unregisterMBean(name);
      }
      server.registerMBean(new PlacementMBean(policy, metrics, assignments), name);
    } catch (JMException e) {
      LOG.warn("The placement policy is not visible over JMX", e);
    }
  }

  private List<Assignment> list() {
    Assignments now = assignments.get();
    return now == null ? List.of() : now.list();
  }

  @Override
  public String getLayout() {
    return config.layout().text();
  }

  @Override
  public String getDomainSource() {
    return config.domains().text();
  }

  @Override
  public int getRacks() {
    ClusterView now = view.get();
    return now == null ? 0 : now.get().racksInService;
  }

  @Override
  public int getDomains() {
    ClusterView now = view.get();
    return now == null ? 0 : now.get().domainsInService;
  }

  @Override
  public int getAssignments() {
    Assignments now = assignments.get();
    return now == null ? 0 : now.size();
  }

  @Override
  public int getMaxAssignments() {
    return config.maxAssignments();
  }

  @Override
  public int getActiveWriters() {
    return (int) list().stream().filter(Assignment::active).count();
  }

  @Override
  public Map<String, Integer> getWritersPerNode() {
    Map<String, Integer> writers = new TreeMap<>();
    for (Assignment assignment : list()) {
      DatanodeDescriptor node = assignment.node();
      if (node != null && assignment.active()) {
        writers.merge(node.getXferAddr(), 1, Integer::sum);
      }
    }
    return writers;
  }

  @Override
  public String getCurrentAssignments() {
    List<Map<String, Object>> rows =
        Snapshot.sorted(list(), assignment -> -assignment.lastUseMs()).stream()
            .limit(MAX_LISTED)
            .map(PlacementMBean::row)
            .toList();
    try {
      return JSON.writeValueAsString(rows);
    } catch (JsonProcessingException e) {
      return "[]";
    }
  }

  private static Map<String, Object> row(Assignment assignment) {
    Map<String, Object> row = new LinkedHashMap<>();
    DatanodeDescriptor node = assignment.node();
    row.put("client", assignment.writer.client().host());
    row.put("path", assignment.writer.path());
    row.put("rack", assignment.clientRack);
    row.put("node", node == null ? null : node.getXferAddr());
    row.put("location", node == null ? null : node.getNetworkLocation());
    row.put("active", assignment.active());
    row.put("blocks", assignment.blocks());
    return row;
  }

  @Override
  public long getChoices() {
    return metrics.choices.sum();
  }

  @Override
  public long getLocalFirsts() {
    return metrics.local.sum();
  }

  @Override
  public long getStickyFirsts() {
    return metrics.sticky.sum();
  }

  @Override
  public long getNewAssignments() {
    return metrics.assigned.sum();
  }

  @Override
  public long getTakenOver() {
    return metrics.takenOver.sum();
  }

  @Override
  public Map<String, Long> getNodesLeft() {
    return metrics.leftByReason();
  }

  @Override
  public long getBalanced() {
    return metrics.balanced.sum();
  }

  @Override
  public long getSettled() {
    return metrics.settled.sum();
  }

  @Override
  public long getExpired() {
    return metrics.expired.sum();
  }

  @Override
  public long getClientGone() {
    return metrics.clientGone.sum();
  }

  @Override
  public long getEvicted() {
    return metrics.evicted.sum();
  }

  @Override
  public long getSharedDomains() {
    return metrics.sharedDomain.sum();
  }

  @Override
  public long getRackLimitPassed() {
    return metrics.rackLimitPassed.sum();
  }

  @Override
  public long getBusyTaken() {
    return metrics.overloadedTaken.sum();
  }

  @Override
  public long getTooFew() {
    return metrics.tooFew.sum();
  }

  @Override
  public long getFailures() {
    return guard.failures();
  }

  @Override
  public boolean isStockPolicy() {
    return guard.stock() || config.layout() == Layout.RANDOM;
  }

  @Override
  public int getDomainsWithRoom() {
    ClusterView now = view.get();
    return now == null ? 0 : now.get().domainsWithRoom;
  }
}
