package io.hayloft.placement;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The simulation of {@code scripts/placement-at-scale}, small. */
class AtScaleTest {
  private static ScaleTally run(String policy, boolean local, int replicas) {
    ScaleCase of = new ScaleCase(policy, local, 48, 0, replicas, 24, 7);
    ScaleTally tally = new ScaledCluster(of).run();
    assertEquals(
        48L * 24 * ScaleCase.BLOCKS_A_FILE, tally.blocks + tally.tooFew, of + " writes all blocks");
    assertTrue(tally.nodeFailures + tally.hostFailures > 0, of + " has failures");
    assertTrue(tally.copied > 0 && tally.most >= tally.median, of + " copies what is missing");
    return tally;
  }

  @Test
  @Timeout(120)
  void oursKeepsReplicasAndWritersApart() {
    for (int replicas : new int[] {2, 3}) {
      ScaleTally ours = run("split", false, replicas);
      ScaleTally stock = run(ScaleCase.STOCK, false, replicas);
      assertEquals(0, ours.sharedAtEnd + ours.sharedWritten, "no two replicas share a host");
      assertTrue(ours.collisions * 3 < stock.collisions * 2, "writers keep apart");
    }
    assertTrue(run(ScaleCase.STOCK, false, 3).sharedWritten > 0, "stock was told of no hosts");
    assertEquals(0, run(ScaleCase.FAULT_TOLERANT, false, 3).sharedWritten);
  }

  @Test
  @Timeout(120)
  void writersOnTheNodesHosts() {
    assertEquals(0, run("split", true, 3).sharedAtEnd);
    assertTrue(run(ScaleCase.STOCK, true, 3).blocks > 0);
  }
}
