package io.hayloft.pfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.FSDataInputStream;
import org.junit.jupiter.api.Test;

/**
 * Copies, layouts and faults on a real MooseFS of three servers; scripts/pfs-mounted starts it and
 * runs this. Its name keeps it out of other runs.
 */
class MooseFsFaults extends ServerFaults {
  MooseFsFaults() {
    conf.set(PfsKeys.TARGETS, "cs1=/.targets/cs1,cs2=/.targets/cs2,cs3=/.targets/cs3");
    conf.setInt(PfsKeys.COPIES, SERVERS);
    conf.set(PfsKeys.HOST, "cs2");
  }

  @Override
  String[] server(String host) {
    return new String[] {"mfschunkserver", "-c", work + "/" + host + "/cfg", "start"};
  }

  @Override
  Set<String> servers() throws IOException {
    Set<String> found = new TreeSet<>(serversOf(root.resolve("faults/file")));
    for (int n : new int[] {1, 3}) {
      try (var entries = Files.list(root.resolve(".targets/cs" + n))) {
        for (java.nio.file.Path copy : entries.toList()) {
          found.addAll(serversOf(copy));
        }
      }
    }
    // What a scheduler calls a chunk that is on no server that runs.
    found.remove("localhost");
    return found;
  }

  @Override
  void checkWhole() {
    assertTrue(tool("heal", "/faults", "--now") <= 1);
    assertEquals(0, tool("fsck", "/faults", "--read"));
  }

  private int tool(String... words) {
    PrintStream print = new PrintStream(new ByteArrayOutputStream());
    return new Tool(conf, print, System.err).run(words);
  }

  @Test
  void copiesLieOnTheirServersAndTheSchedulerLearnsIt() throws IOException {
    write();
    assertEquals(Set.of("cs2"), serversOf(root.resolve("faults/file")), "the writer's own");
    for (int n : new int[] {1, 3}) {
      try (var entries = Files.list(root.resolve(".targets/cs" + n))) {
        List<java.nio.file.Path> copies = entries.toList();
        assertTrue(!copies.isEmpty());
        for (java.nio.file.Path copy : copies) {
          assertEquals(Set.of("cs" + n), serversOf(copy));
        }
      }
    }
    assertEquals(0, tool("fsck", "/", "--read"));
  }

  @Test
  void aHungServerCostsNoByteInReadsOfAnyKind() throws Exception {
    write();
    long limitMs = 1_000;
    conf.setTimeDuration(PfsKeys.TIMEOUT, limitMs, TimeUnit.MILLISECONDS);
    try (PfsFileSystem hasty = (PfsFileSystem) TestRoot.open(conf)) {
      for (Map.Entry<String, ReadKinds.Kind> kind : ReadKinds.all().entrySet()) {
        FSDataInputStream in = hasty.open(FILE);
        forgetCached();
        signal("-STOP", "cs2");
        long before = System.nanoTime();
        try {
          byte[] got = kind.getValue().read(in, LENGTH);
          long tookMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - before);
          assertTrue(tookMs >= limitMs, kind.getKey() + ": the nearest copy did not hang");
          assertArrayEquals(data, got, kind.getKey());
        } finally {
          signal("-CONT", "cs2");
        }
        in.close();
      }
    }
  }
}
