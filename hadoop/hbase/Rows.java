import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.RegionMetrics;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;

/**
 * A client of HBase for the suite {@code securejobs}, run from its source.
 *
 * <ul>
 *   <li>{@code load COUNT}: puts so many rows, flushes twice, compacts, and scans them all.
 *   <li>{@code write COUNT FILE}: puts them one by one, and writes those that were acknowledged.
 *   <li>{@code verify FILE}: looks for each of those.
 * </ul>
 */
public final class Rows {
  private static final byte[] FAMILY = bytes("f");
  private static final byte[] COLUMN = bytes("c");
  private static final int THREADS = 4;
  private static final int REGIONS = 4;
  private static final long PATIENCE_MS = 120_000;

  private Rows() {}

  public static void main(String[] args) throws Exception {
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create())) {
      switch (args[0]) {
        case "load" -> load(connection, Integer.parseInt(args[1]));
        case "write" -> write(connection, Integer.parseInt(args[1]), Path.of(args[2]));
        case "verify" -> verify(connection, Path.of(args[1]));
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
        List<Put> puts = new ArrayList<>();
        for (int row = half * count / 2; row < (half + 1) * count / 2; row++) {
          puts.add(put(row));
          if (puts.size() == 500) {
            table.put(puts);
            puts.clear();
          }
        }
        table.put(puts);
        admin.flush(name);
      }
      int files = storeFiles(admin, name);
      check(files == 2 * REGIONS, files + " store files after two flushes");
      admin.majorCompact(name);
      long until = System.currentTimeMillis() + PATIENCE_MS;
      while (storeFiles(admin, name) != REGIONS) {
        check(System.currentTimeMillis() < until, "the compaction does not end");
        Thread.sleep(500);
      }
      Set<Integer> rows = scan(table);
      check(rows.size() == count, rows.size() + " rows of " + count);
    }
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

  private static void write(Connection connection, int count, Path file) throws Exception {
    AtomicInteger next = new AtomicInteger();
    ConcurrentLinkedQueue<String> acknowledged = new ConcurrentLinkedQueue<>();
    AtomicInteger done = new AtomicInteger();
    AtomicInteger failed = new AtomicInteger();
    make(connection, "written").close();
    Thread[] threads = new Thread[THREADS];
    for (int thread = 0; thread < THREADS; thread++) {
      threads[thread] =
          new Thread(
              () -> {
                try (Table table = connection.getTable(TableName.valueOf("written"))) {
                  int row;
                  while ((row = next.getAndIncrement()) < count) {
                    table.put(put(row));
                    acknowledged.add(String.valueOf(row));
                    int all = done.incrementAndGet();
                    if (all % 100 == 0) {
                      System.out.println("acknowledged " + all);
                    }
                  }
                } catch (Exception problem) {
                  problem.printStackTrace();
                  failed.incrementAndGet();
                }
              });
      threads[thread].start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    Files.write(file, acknowledged);
    check(failed.get() == 0, "a put was given up");
  }

  private static void verify(Connection connection, Path file) throws Exception {
    try (Table table = connection.getTable(TableName.valueOf("written"))) {
      Set<Integer> rows = scan(table);
      List<String> acknowledged = Files.readAllLines(file);
      check(!acknowledged.isEmpty(), "nothing was acknowledged");
      for (String row : acknowledged) {
        check(rows.contains(Integer.parseInt(row)), "row " + row + " was acknowledged and is lost");
      }
    }
  }
}
