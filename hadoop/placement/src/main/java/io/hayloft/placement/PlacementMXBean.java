package io.hayloft.placement;

import java.util.Map;

/** What the policy shows over JMX; counters are since its start. */
public interface PlacementMXBean {
  /** The layout's word in the configuration. */
  String getLayout();

  /** The word of the source of failure domains. */
  String getDomainSource();

  /** Racks with a node in service. */
  int getRacks();

  /** Failure domains with a node in service. */
  int getDomains();

  /** Assignments known at present. */
  int getAssignments();

  /** The most assignments that are kept. */
  int getMaxAssignments();

  /** Assignments whose writer asked for a block within the active window. */
  int getActiveWriters();

  /** Active writers a node, by {@code address:port}; nodes with none are left out. */
  Map<String, Integer> getWritersPerNode();

  /** Current assignments as JSON, the most recent first, at most 1,000. */
  String getCurrentAssignments();

  /** Blocks and copies for which targets were chosen. */
  long getChoices();

  /** First replicas on the writer's own node. */
  long getLocalFirsts();

  /** First replicas on the writer's sticky node. */
  long getStickyFirsts();

  /** New sticky nodes, replaced ones included. */
  long getNewAssignments();

  /** Assignments that a client's next file took over. */
  long getTakenOver();

  /** Sticky nodes given up, by reason. */
  Map<String, Long> getNodesLeft();

  /** Assignments moved by the balancing thread. */
  long getBalanced();

  /** Assignments that counted no longer as writers because their files seemed to be closed. */
  long getSettled();

  /** Assignments forgotten because they were not used for long. */
  long getExpired();

  /** Assignments forgotten because the client's connection was closed. */
  long getClientGone();

  /** Assignments forgotten because there were too many. */
  long getEvicted();

  /** Replicas in a domain that already had one, since no other would do. */
  long getSharedDomains();

  /** Replicas beyond a rack's limit, taken for a domain of their own. */
  long getRackLimitPassed();

  /** Replicas on a busy node, taken for a domain of their own. */
  long getBusyTaken();

  /** Choices that found fewer nodes than asked for. */
  long getTooFew();

  /** Questions that the stock policy answered because the plug-in failed at them. */
  long getFailures();

  /** Whether the stock policy answers everything, by configuration or after a failure. */
  boolean isStockPolicy();

  /** Failure domains of which some node could take a block at present. */
  int getDomainsWithRoom();
}
