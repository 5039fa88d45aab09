package io.hayloft.pfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Test;

/**
 * Layouts, copies by rack and faults on a real CephFS of three OSDs in two racks, where each
 * object is once in each rack. scripts/pfs-mounted starts it and runs this.
 */
class CephFaults extends ServerFaults {
  private static final int MIB = 1 << 20;

  private static final Pattern ACTING =
      Pattern.compile("acting \\(\\[([0-9,]*)\\], p([0-9-]+)\\)");

  @Override
  String[] server(String host) {
    return new String[] {"ceph-osd", "-i", String.valueOf(osd(host))};
  }

  private static int osd(String host) {
    return Integer.parseInt(host.substring(2)) - 1;
  }

  private static String host(String osd) {
    return "cs" + (Integer.parseInt(osd) + 1);
  }

  /** What the monitors say of an object: its OSDs, and the one that answers. */
  private static Matcher acting(String pool, String object) throws Exception {
    String said = TestRoot.run("ceph", "osd", "map", pool, object);
    Matcher acting = ACTING.matcher(said);
    assertTrue(acting.find(), said);
    return acting;
  }

  private static String object(java.nio.file.Path file, int number) throws IOException {
    return String.format("%x.%08x", (long) Files.getAttribute(file, "unix:ino"), number);
  }

  private static String answering(String pool, java.nio.file.Path file) throws Exception {
    return host(acting(pool, object(file, 0)).group(2));
  }

  @Override
  Set<String> servers() throws Exception {
    Set<String> hosts = new TreeSet<>();
    String osds = acting("data", object(root.resolve("faults/file"), 0)).group(1);
    for (String osd : osds.split(",")) {
      hosts.add(host(osd));
    }
    return hosts;
  }

  @Override
  void checkWhole() throws Exception {
    await(
        "every object to be in each rack",
        () -> {
          String said = TestRoot.run("ceph", "pg", "stat");
          return !said.contains("degraded") && !said.contains("peering");
        });
    forgetCached();
    assertArrayEquals(data, read());
  }

  private FileStatus write(String name, byte[] bytes) throws IOException {
    try (FSDataOutputStream out = fs.create(new Path(name), true)) {
      out.write(bytes);
    }
    return fs.getFileStatus(new Path(name));
  }

  /** By the bytes themselves: the object that has them is asked for by its name. */
  @Test
  void theSchedulerLearnsWhichServerAnswersForEachBlock() throws Exception {
    java.nio.file.Path directory = Files.createDirectories(root.resolve("striped"));
    for (String[] part :
        new String[][] {
          {"stripe_unit", "1048576"}, {"object_size", "2097152"}, {"stripe_count", "3"}
        }) {
      TestRoot.run(
          "setfattr", "-n", "ceph.dir.layout." + part[0], "-v", part[1], directory.toString());
    }
    conf.setInt(PfsKeys.BLOCK_SIZE, MIB);
    Set<String> all = new TreeSet<>();
    try (PfsFileSystem small = (PfsFileSystem) TestRoot.open(conf)) {
      FileStatus status = write("/striped/file", data);
      BlockLocation[] blocks = small.getFileBlockLocations(status, 0, LENGTH);
      assertEquals(LENGTH / MIB, blocks.length);
      java.nio.file.Path got = work.resolve("object");
      for (int number = 0; number < 5; number++) {
        String object = object(directory.resolve("file"), number);
        TestRoot.run("rados", "-p", "data", "get", object, got.toString());
        byte[] bytes = Files.readAllBytes(got);
        String answers = host(acting("data", object).group(2));
        all.add(answers);
        for (int at = 0; at < bytes.length; at += MIB) {
          BlockLocation block = blocks[blockWith(Arrays.copyOfRange(bytes, at, at + MIB))];
          assertArrayEquals(new String[] {answers}, block.getHosts(), object + " at " + at);
        }
      }
    }
    assertTrue(all.size() > 1, "objects are spread: " + all);
  }

  private int blockWith(byte[] bytes) {
    for (int block = 0; block < LENGTH / MIB; block++) {
      if (Arrays.equals(data, block * MIB, (block + 1) * MIB, bytes, 0, MIB)) {
        return block;
      }
    }
    throw new AssertionError("an object has other bytes than the file");
  }

  private void byRack(String rack) {
    conf.set(PfsKeys.TARGETS, "/rack1=/.targets/rack1,/rack2=/.targets/rack2");
    conf.setInt(PfsKeys.COPIES, 2);
    conf.set(PfsKeys.HOST, rack);
  }

  private static List<java.nio.file.Path> copiesIn(java.nio.file.Path directory)
      throws IOException {
    try (var entries = Files.list(directory)) {
      return entries.toList();
    }
  }

  @Test
  void copiesLieInEachRackAndTheSchedulerLearnsIt() throws Exception {
    byRack("/rack2");
    try (PfsFileSystem racks = (PfsFileSystem) TestRoot.open(conf)) {
      try (FSDataOutputStream out = racks.create(FILE, true)) {
        out.write(data);
      }
      java.nio.file.Path first = root.resolve("faults/file");
      assertEquals("cs3", answering("in-rack2", first), "the writer's own rack");
      List<java.nio.file.Path> copies = copiesIn(root.resolve(".targets/rack1"));
      assertEquals(1, copies.size());
      String other = answering("in-rack1", copies.get(0));
      assertTrue(Set.of("cs1", "cs2").contains(other), other);
      BlockLocation[] blocks = racks.getFileBlockLocations(racks.getFileStatus(FILE), 0, LENGTH);
      assertArrayEquals(new String[] {"cs3", other}, blocks[0].getHosts());
      assertTrue(racks.delete(FILE, false));
      assertEquals(List.of(), copiesIn(root.resolve(".targets/rack1")), "they go with the file");
    }
  }

  @Test
  void copiesLieOnTheirServers() throws Exception {
    conf.set(PfsKeys.TARGETS, "cs1=/.targets/cs1,cs2=/.targets/cs2,cs3=/.targets/cs3");
    conf.setInt(PfsKeys.COPIES, SERVERS);
    conf.set(PfsKeys.HOST, "cs2");
    try (PfsFileSystem copied = (PfsFileSystem) TestRoot.open(conf)) {
      try (FSDataOutputStream out = copied.create(FILE, true)) {
        out.write(data);
      }
      assertEquals("cs2", answering("in-cs2", root.resolve("faults/file")));
      for (String host : List.of("cs1", "cs3")) {
        List<java.nio.file.Path> copies = copiesIn(root.resolve(".targets/" + host));
        assertEquals(1, copies.size());
        assertEquals(host, answering("in-" + host, copies.get(0)));
      }
      assertTrue(copied.delete(FILE, false));
    }
  }

  @Test
  void aRackThatDiesCostsNoByteInReadsOfAnyKind() throws Exception {
    byRack("/rack2");
    // Longer than other servers need to see that one is dead: meanwhile the metadata wait, too.
    long limitMs = 8_000;
    conf.setTimeDuration(PfsKeys.TIMEOUT, limitMs, TimeUnit.MILLISECONDS);
    try (PfsFileSystem hasty = (PfsFileSystem) TestRoot.open(conf)) {
      try (FSDataOutputStream out = hasty.create(FILE, true)) {
        out.write(data);
      }
      for (Map.Entry<String, ReadKinds.Kind> kind : ReadKinds.all().entrySet()) {
        FSDataInputStream in = hasty.open(FILE);
        forgetCached();
        kill("cs3");
        long before = System.nanoTime();
        byte[] got = kind.getValue().read(in, LENGTH);
        long tookMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - before);
        assertTrue(tookMs >= limitMs, kind.getKey() + ": the nearest copy did not hang");
        assertArrayEquals(data, got, kind.getKey());
        in.close();
        start("cs3");
        await("cs3 to be back", () -> TestRoot.run("ceph", "osd", "stat").contains("3 up"));
      }
      assertTrue(hasty.delete(FILE, false));
    }
  }

  /** Nor do other tools than Ceph's: every host is as near, and the bytes are read. */
  @Test
  void monitorsThatHangAndWrongLayoutsCostOnlyThePlaces() throws Exception {
    FileStatus status = write("/faults/file", data);
    for (String wrong : List.of("cephfs", "moosefs", "gluster", "lustre", "orangefs")) {
      conf.set(PfsKeys.LAYOUT, wrong);
      conf.set(PfsKeys.LAYOUT_TIMEOUT, "2s");
      try (PfsFileSystem lost = (PfsFileSystem) TestRoot.open(conf)) {
        if (wrong.equals("cephfs")) {
          TestRoot.run("pkill", "-STOP", "-x", "ceph-mon");
        }
        try {
          long before = System.nanoTime();
          BlockLocation[] blocks = lost.getFileBlockLocations(status, 0, LENGTH);
          assertTrue(System.nanoTime() - before < 10_000_000_000L, wrong);
          assertArrayEquals(new String[] {"localhost"}, blocks[0].getHosts(), wrong);
        } finally {
          TestRoot.run("pkill", "-CONT", "-x", "ceph-mon");
        }
        try (FSDataInputStream in = lost.open(FILE)) {
          assertArrayEquals(data, in.readAllBytes(), wrong);
        }
      }
    }
  }
}
