package io.hayloft.placement;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Whatever fails in the plug-in, the NameNode goes on. */
class FailuresTest extends RealNameNode {
  /** A policy with a defect that a test switches on. */
  public static final class Failing extends HayloftPlacementPolicy {
    static volatile RuntimeException exception;
    static volatile Error error;

    @Override
    protected int[] getMaxNodesPerRack(int chosen, int replicas) {
      if (!isStock() && exception != null) {
        throw exception;
      }
      if (!isStock() && error != null) {
        throw error;
      }
      return super.getMaxNodesPerRack(chosen, replicas);
    }
  }

  @Test
  @Timeout(180)
  void theStockPolicyAnswersWhereThePluginFails() throws Exception {
    Configuration conf = conf();
    java.nio.file.Path domains = Files.writeString(dir.resolve("domains"), "127.0.0.9 a\n");
    conf.set(PlacementKeys.DOMAINS, "file");
    conf.set(PlacementKeys.DOMAINS_FILE, domains.toString());
    conf.set(DFSConfigKeys.DFS_BLOCK_REPLICATOR_CLASSNAME_KEY, Failing.class.getName());
    try (MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(conf, dir.toFile()).numDataNodes(2).build()) {
      cluster.waitActive();
      DistributedFileSystem fs = cluster.getFileSystem();
      for (int i = 0; i < 2; i++) {
        write(fs, "/f-" + i, 1, 1);
      }
      Files.writeString(domains, "one two three\n");
      assertTrue(fsck(conf).contains("HEALTHY"), "fsck takes what the NameNode read before");
      Failing.exception = new IllegalStateException("a defect of the plug-in");
      copiedBy(fs, "/f-0");
      Failing.exception = null;
      Failing.error = new NoSuchMethodError("as in another release");
      copiedBy(fs, "/f-1");
      write(fs, "/g", 2, 1);
    } finally {
      Failing.exception = null;
      Failing.error = null;
    }
  }

  /** The NameNode's RedundancyMonitor, which an exception would end, makes a second replica. */
  private static void copiedBy(DistributedFileSystem fs, String name) throws Exception {
    fs.setReplication(new Path(name), (short) 2);
    until(
        name + " has two replicas",
        () -> fs.getFileBlockLocations(new Path(name), 0, 1)[0].getHosts().length == 2);
  }

  @Test
  void aRepeatedTaskSurvivesAnything() throws Exception {
    AtomicInteger runs = new AtomicInteger();
    CountDownLatch twice = new CountDownLatch(2);
    Object owner = new Object();
    Ticker.start(
        owner,
        1,
        any -> {
          twice.countDown();
          if (runs.getAndIncrement() == 0) {
            throw new NoClassDefFoundError("as in another release");
          }
        });
    assertTrue(twice.await(10, TimeUnit.SECONDS), "the error ended the repetition");
    assertTrue(owner.hashCode() == owner.hashCode(), "the owner is alive until here");
  }

  @Test
  void valuesMayChangeWhileTheyAreSorted() {
    List<Integer> items = new ArrayList<>(IntStream.range(0, 10_000).boxed().toList());
    for (int round = 0; round < 20; round++) {
      assertEquals(
          items.size(),
          Snapshot.sorted(items, item -> ThreadLocalRandom.current().nextLong()).size());
    }
    assertEquals(List.of(1, 2, 3), Snapshot.sorted(List.of(3, 1, 2), Integer::longValue));
  }
}
