import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Queue;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.RegionMetrics;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;

/**
 * A client of HBase for the suites {@code securejobs} and {@code logs}, run from its source.
 *
 * <ul>
 *   <li>{@code load COUNT}: puts so many rows, flushes twice, compacts, and scans them all.
 *   <li>{@code write COUNT FILE}: puts them one by one, and writes those that were acknowledged.
 *   <li>{@code verify FILE}: looks for each of those.
 *   <li>{@code snapshot COUNT FILE}: takes a snapshot under writers that have put so many rows,
 *       lets them put as many more, deletes and changes those of before, and clones the snapshot.
 *       Writes the rows of the clone.
 *   <li>{@code restore FILE}: restores the snapshot. Its table and the clone have those rows.
 *   <li>{@code roll COUNT LOG}: rolls the log of the only region server so often, and says after
 *       how many milliseconds the server has said so in its LOG.
 *   <li>{@code outage TABLE COUNT}: puts so many rows, and waits for a second region server. When
 *       the first is killed then, it says at which millisecond of the clock the master had noticed,
 *       and at which one all regions answered again. It looks for all rows.
 * </ul>
 */
public final class Rows {
  private static final byte[] FAMILY = bytes("f");
  private static final byte[] COLUMN = bytes("c");
  private static final TableName CLONE = TableName.valueOf("cloned");
  private static final int THREADS = 4;
  private static final int REGIONS = 4;
  private static final long PATIENCE_MS = 300_000;

  /** A whole line of a region server: its log goes on in a new file. That of meta is another. */
  private static final Pattern ROLLED = Pattern.compile("Rolled WAL .*(?<!\\.meta)\\R");

  private Rows() {}

  public static void main(String[] args) throws Exception {
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create())) {
      switch (args[0]) {
        case "load" -> load(connection, Integer.parseInt(args[1]));
        case "write" -> write(connection, Integer.parseInt(args[1]), Path.of(args[2]));
        case "verify" -> verify(connection, Path.of(args[1]));
        case "snapshot" -> snapshot(connection, Integer.parseInt(args[1]), Path.of(args[2]));
        case "restore" -> restore(connection, Path.of(args[1]));
        case "roll" -> roll(connection, Integer.parseInt(args[1]), Path.of(args[2]));
        case "outage" -> outage(connection, args[1], Integer.parseInt(args[2]));
        default -> throw new IllegalArgumentException(args[0]);
      }
    }
    System.out.println("ok");
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  /** Keys that are spread over all regions. */
  private static byte[] key(int row) {
    return bytes(String.format("%d-%08d", row % REGIONS, row));
  }

  private static byte[] value(int row) {
    byte[] value = new byte[200];
    new Random(row).nextBytes(value);
    return value;
  }

  private static Put put(int row) {
    return new Put(key(row)).addColumn(FAMILY, COLUMN, value(row));
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  /** Asks until it is so, also where asking fails; the milliseconds of the clock then. */
  private static long until(String what, long pauseMs, Callable<Boolean> isSo) throws Exception {
    long limit = System.currentTimeMillis() + PATIENCE_MS;
    IOException problem = null;
    while (true) {
      try {
        if (isSo.call()) {
          return System.currentTimeMillis();
        }
      } catch (IOException e) {
        problem = e;
      }
      if (System.currentTimeMillis() > limit) {
        throw new AssertionError(what, problem);
      }
      Thread.sleep(pauseMs);
    }
  }

  private static Table make(Connection connection, String name) throws Exception {
    TableName table = TableName.valueOf(name);
    byte[][] splits = new byte[REGIONS - 1][];
    for (int region = 1; region < REGIONS; region++) {
      splits[region - 1] = bytes(String.valueOf(region));
    }
    try (Admin admin = connection.getAdmin()) {
      admin.createTable(
          TableDescriptorBuilder.newBuilder(table)
              .setColumnFamily(ColumnFamilyDescriptorBuilder.of(FAMILY))
              .build(),
          splits);
    }
    return connection.getTable(table);
  }

  private static void load(Connection connection, int count) throws Exception {
    try (Table table = make(connection, "loaded");
        Admin admin = connection.getAdmin()) {
      TableName name = table.getName();
      for (int half = 0; half < 2; half++) {
        putAll(table, half * count / 2, (half + 1) * count / 2);
        admin.flush(name);
      }
      int files = storeFiles(admin, name);
      check(files == 2 * REGIONS, files + " store files after two flushes");
      compact(admin, name);
      Set<Integer> rows = scan(table);
      check(rows.size() == count, rows.size() + " rows of " + count);
    }
  }

  private static void putAll(Table table, int from, int to) throws IOException {
    List<Put> puts = new ArrayList<>();
    for (int row = from; row < to; row++) {
      puts.add(put(row));
      if (puts.size() == 500) {
        table.put(puts);
        puts.clear();
      }
    }
    table.put(puts);
  }

  private static void compact(Admin admin, TableName name) throws Exception {
    admin.majorCompact(name);
    until("the compaction does not end", 500, () -> storeFiles(admin, name) == REGIONS);
  }

  private static int storeFiles(Admin admin, TableName table) throws Exception {
    int files = 0;
    for (ServerName server : admin.getRegionServers()) {
      for (RegionMetrics region : admin.getRegionMetrics(server, table)) {
        files += region.getStoreFileCount();
      }
    }
    return files;
  }

  /** All rows there are; each has to be as it was put. */
  private static Set<Integer> scan(Table table) throws Exception {
    Set<Integer> rows = new HashSet<>();
    try (ResultScanner scanner = table.getScanner(new Scan().setCaching(500))) {
      for (Result result : scanner) {
        String key = new String(result.getRow(), StandardCharsets.UTF_8);
        int row = Integer.parseInt(key.substring(key.indexOf('-') + 1));
        check(Arrays.equals(result.getValue(FAMILY, COLUMN), value(row)), "row " + row);
        check(rows.add(row), "row " + row + " comes twice");
      }
    }
    return rows;
  }

  /** Threads that put the rows of a table one by one. */
  private static final class Writers {
    /** Rows from this one on are not begun. */
    final AtomicInteger next = new AtomicInteger();

    final Queue<Integer> acknowledged = new ConcurrentLinkedQueue<>();
    private final AtomicInteger done = new AtomicInteger();
    private final AtomicInteger failed = new AtomicInteger();
    private final List<Thread> threads = new ArrayList<>();
    private volatile int end;

    Writers(Connection connection, TableName name, int end) {
      this.end = end;
      for (int thread = 0; thread < THREADS; thread++) {
        threads.add(new Thread(() -> write(connection, name)));
      }
      threads.forEach(Thread::start);
    }

    private void write(Connection connection, TableName name) {
      try (Table table = connection.getTable(name)) {
        int row;
        while ((row = next.getAndIncrement()) < end) {
          table.put(put(row));
          acknowledged.add(row);
          int all = done.incrementAndGet();
          if (all % 100 == 0) {
            System.out.println("acknowledged " + all);
          }
        }
      } catch (Exception problem) {
        problem.printStackTrace();
        failed.incrementAndGet();
      }
    }

    /** Lets them put all rows before this one, and waits until they have. */
    void join(int end) throws Exception {
      this.end = end;
      for (Thread thread : threads) {
        thread.join();
      }
      check(failed.get() == 0, "a put was given up");
    }
  }

  private static void write(Connection connection, int count, Path file) throws Exception {
    try (Table table = make(connection, "written")) {
      Writers writers = new Writers(connection, table.getName(), count);
      writers.join(count);
      keep(writers.acknowledged, file);
    }
  }

  private static void keep(Collection<Integer> rows, Path file) throws IOException {
    Files.write(file, rows.stream().map(String::valueOf).toList());
  }

  private static Set<Integer> kept(Path file) throws IOException {
    Set<Integer> rows = new HashSet<>();
    Files.readAllLines(file).forEach(row -> rows.add(Integer.valueOf(row)));
    check(!rows.isEmpty(), file + " has no rows");
    return rows;
  }

  private static void verify(Connection connection, Path file) throws Exception {
    try (Table table = connection.getTable(TableName.valueOf("written"))) {
      Set<Integer> rows = scan(table);
      for (int row : kept(file)) {
        check(rows.contains(row), "row " + row + " was acknowledged and is lost");
      }
    }
  }

  private static void roll(Connection connection, int count, Path log) throws Exception {
    try (Table table = make(connection, "rolled");
        Admin admin = connection.getAdmin()) {
      ServerName server = admin.getRegionServers().iterator().next();
      for (int row = 0; row < count; row++) {
        table.put(put(row));
        int end = (int) Files.size(log);
        long asked = System.nanoTime();
        admin.rollWALWriter(server);
        until("no new log", 2, () -> ROLLED.matcher(textFrom(log, end)).find());
        System.out.println("rolled " + (System.nanoTime() - asked) / 1_000_000);
      }
    }
  }

  private static String textFrom(Path file, int offset) throws IOException {
    byte[] all = Files.readAllBytes(file);
    return new String(all, offset, all.length - offset, StandardCharsets.UTF_8);
  }

  private static void outage(Connection connection, String name, int count) throws Exception {
    // One that does not wait before it tries again.
    Configuration hasty = HBaseConfiguration.create();
    hasty.setInt("hbase.client.retries.number", 1);
    hasty.setInt("hbase.client.pause", 20);
    hasty.setInt("hbase.rpc.timeout", 2000);
    hasty.setInt("hbase.client.operation.timeout", 2000);
    hasty.setInt("hbase.client.meta.operation.timeout", 2000);
    try (Table table = make(connection, name);
        Admin admin = connection.getAdmin();
        Connection asking = ConnectionFactory.createConnection(hasty)) {
      admin.balancerSwitch(false, true);
      ServerName first = admin.getRegionServers().iterator().next();
      System.out.println("the table is made");
      putAll(table, 0, count);
      until("no second server", 100, () -> admin.getRegionServers().size() == 2);
      int regions = admin.getRegionMetrics(first, table.getName()).size();
      check(regions == REGIONS, "the first server has " + regions + " regions");
      TableName[] tables = admin.listTableNames();
      System.out.println("there are two servers");
      long noticed =
          until("nothing is noticed", 20, () -> !admin.getRegionServers().contains(first));
      long served = until("not all regions answer", 20, () -> allAnswer(asking, tables));
      System.out.println("noticed " + noticed);
      System.out.println("served " + served);
      int rows = scan(table).size();
      check(rows == count, rows + " rows of " + count);
    }
  }

  /** Each region of the tables answers from where meta says that it is; else this throws. */
  private static boolean allAnswer(Connection connection, TableName[] tables) throws IOException {
    connection.clearRegionLocationCache();
    for (TableName name : tables) {
      try (Table table = connection.getTable(name)) {
        for (int region = 0; region < REGIONS; region++) {
          table.exists(new Get(key(region)));
        }
      }
    }
    return true;
  }

  private static void snapshot(Connection connection, int count, Path file) throws Exception {
    try (Table table = make(connection, "snapped");
        Admin admin = connection.getAdmin()) {
      TableName name = table.getName();
      Writers writers = new Writers(connection, name, Integer.MAX_VALUE);
      until("few rows are put", 20, () -> writers.acknowledged.size() >= count);
      Set<Integer> before = new HashSet<>(writers.acknowledged);
      admin.snapshot("snapshot", name);
      int begun = writers.next.get();
      System.out.println("the snapshot is taken");
      writers.join(begun + count);
      System.out.println("all rows are put");
      change(table, count);
      admin.flush(name);
      // From now on the snapshot alone holds the old files.
      compact(admin, name);
      admin.cloneSnapshot("snapshot", CLONE);
      try (Table clone = connection.getTable(CLONE)) {
        Set<Integer> rows = scan(clone);
        check(rows.containsAll(before), "the snapshot lacks rows of before it");
        check(rows.stream().allMatch(row -> row < begun), "the snapshot has rows of after it");
        System.out.println(rows.size() + " rows, of " + before.size() + " to " + begun);
        keep(rows, file);
      }
    }
  }

  /** Deletes the first half of these rows, and gives each of the others the value of another. */
  private static void change(Table table, int count) throws IOException {
    List<Delete> deletes = new ArrayList<>();
    List<Put> puts = new ArrayList<>();
    for (int row = 0; row < count / 2; row++) {
      deletes.add(new Delete(key(row)));
      int other = row + count / 2;
      puts.add(new Put(key(other)).addColumn(FAMILY, COLUMN, value(row)));
    }
    table.delete(deletes);
    table.put(puts);
  }

  private static void restore(Connection connection, Path file) throws Exception {
    Set<Integer> then = kept(file);
    TableName name = TableName.valueOf("snapped");
    try (Table table = connection.getTable(name);
        Table clone = connection.getTable(CLONE);
        Admin admin = connection.getAdmin()) {
      check(!table.exists(new Get(key(0))), "the table is as it was already");
      admin.disableTable(name);
      admin.restoreSnapshot("snapshot");
      admin.enableTable(name);
      check(scan(table).equals(then), "the restored table has other rows than the snapshot");
      // It takes rows, and the clone is another table.
      int more = Collections.max(then) + 1;
      table.put(put(more));
      admin.flush(name);
      check(scan(table).size() == then.size() + 1, "the restored table has not the row put then");
      check(scan(clone).equals(then), "the clone has other rows than the snapshot");
    }
  }
}
