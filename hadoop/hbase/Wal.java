import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.hayloft.lab.LabDriver;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Queue;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionInfoBuilder;
import org.apache.hadoop.hbase.regionserver.MultiVersionConcurrencyControl;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.NettyEventLoopGroupConfig;
import org.apache.hadoop.hbase.wal.NettyAsyncFSWALConfigHelper;
import org.apache.hadoop.hbase.wal.WAL;
import org.apache.hadoop.hbase.wal.WALEdit;
import org.apache.hadoop.hbase.wal.WALFactory;
import org.apache.hadoop.hbase.wal.WALKeyImpl;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.protocol.DatanodeID;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/**
 * HBase's write-ahead log for {@code hayloft-lab bench}, run from its source: the lab's client with
 * the operation {@code wal}. The log is HBase's own, by its factory, as a region server has it.
 *
 * <p>HBase lets no node be named for a log, and the bench has all nodes below one NameNode. So the
 * client's requests for blocks pass a proxy, which names the nodes to prefer. It also keeps which
 * nodes a log got: others than those fail the operation.
 */
public final class Wal {
  private static final TableName TABLE = TableName.valueOf("bench");
  private static final RegionInfo REGION = RegionInfoBuilder.newBuilder(TABLE).build();
  private static final byte[] FAMILY = Bytes.toBytes("f");
  private static final byte[] COLUMN = Bytes.toBytes("c");

  /** A log that broke is not rolled here: its writers give up then. */
  private static final int SYNC_LIMIT_MS = 60_000;

  /** Where in the arguments of {@code addBlock} the favored nodes are. */
  private static final int FAVORED = 5;

  /** Where in the arguments of {@code updatePipeline} the new nodes are. */
  private static final int NEW_NODES = 3;

  private static volatile String[] wanted = {};

  /** The nodes of each block, and of each pipeline that was mended. */
  private static final Queue<Set<String>> PIPELINES = new ConcurrentLinkedQueue<>();

  private Wal() {}

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    // As a region server does: one group of threads for all logs.
    NettyEventLoopGroupConfig loops = new NettyEventLoopGroupConfig(conf, "RS-EventLoopGroup");
    NettyAsyncFSWALConfigHelper.setEventLoopConfig(
        conf, loops.group(), loops.clientChannelClass());
    // HBase takes this same file system, out of Hadoop's cache.
    pin(((DistributedFileSystem) FileSystem.get(conf)).getClient());
    LabDriver.serve(Map.of("wal", (request, answer) -> write(conf, request, answer)));
  }

  private static void pin(DFSClient client) throws ReflectiveOperationException {
    ClientProtocol namenode = client.getNamenode();
    Class<?>[] types = {ClientProtocol.class};
    Field field = DFSClient.class.getDeclaredField("namenode");
    field.setAccessible(true);
    field.set(client, Proxy.newProxyInstance(Wal.class.getClassLoader(), types,
        (proxy, method, arguments) -> {
          boolean adds = method.getName().equals("addBlock");
          if (adds) {
            arguments[FAVORED] = wanted;
          }
          if (method.getName().equals("updatePipeline")) {
            keep((DatanodeID[]) arguments[NEW_NODES]);
          }
          try {
            Object answer = method.invoke(namenode, arguments);
            if (adds) {
              keep(((LocatedBlock) answer).getLocations());
            }
            return answer;
          } catch (InvocationTargetException e) {
            throw e.getCause();
          }
        }));
  }

  private static void keep(DatanodeID[] nodes) {
    Set<String> names = new TreeSet<>();
    for (DatanodeID node : nodes) {
      names.add(node.getXferAddr());
    }
    PIPELINES.add(names);
  }

  /**
   * Writes one log. Each thread appends edits of one row and one column, and syncs each. All begin
   * together when each has done some that do not count, and the log is closed behind the last one.
   * Arguments: path (of HBase's directory), provider, hsync, threads, edits (of each thread), bytes
   * (of a value), nodes ("host:port", as many as replicas). Results: bytes (of the values), nanos
   * (from the first edit that counts to the last), micros (of each append and its sync).
   */
  private static void write(Configuration base, ObjectNode request, ObjectNode answer)
      throws Exception {
    List<String> nodes = new ArrayList<>();
    request.path("nodes").forEach(node -> nodes.add(node.asText()));
    PIPELINES.clear();
    wanted = nodes.toArray(new String[0]);
    Configuration conf = new Configuration(base);
    conf.set("hbase.rootdir", FileSystem.getDefaultUri(conf) + request.path("path").asText());
    conf.set(WALFactory.WAL_PROVIDER, request.path("provider").asText());
    conf.setBoolean("hbase.wal.hsync", request.path("hsync").asBoolean());
    conf.setInt("hbase.regionserver.hlog.replication", nodes.size());
    conf.setInt("hbase.regionserver.wal.sync.timeout", SYNC_LIMIT_MS);
    // A directory of its own: HBase refuses one with a log in it.
    WALFactory factory = new WALFactory(conf, "bench-" + System.nanoTime());
    try {
      measure(new Writer(factory.getWAL(REGION), request.path("bytes").asInt()), request, answer);
    } finally {
      factory.shutdown();
    }
    Set<String> here = new TreeSet<>(nodes);
    if (PIPELINES.isEmpty() || !PIPELINES.stream().allMatch(here::equals)) {
      throw new IOException("the log was on " + PIPELINES + ", not on " + here);
    }
  }

  private static void measure(Writer writer, ObjectNode request, ObjectNode answer)
      throws Exception {
    int threads = request.path("threads").asInt();
    int edits = request.path("edits").asInt();
    List<Long> times = Collections.synchronizedList(new ArrayList<>());
    CyclicBarrier together = new CyclicBarrier(threads, () -> times.add(System.nanoTime()));
    AtomicReference<Exception> failed = new AtomicReference<>();
    Callable<long[]> task = () -> {
      long[] took = new long[edits];
      try {
        writer.append(new long[1 + edits / 10]);
        together.await(5, TimeUnit.MINUTES);
        writer.append(took);
        together.await(5, TimeUnit.MINUTES);
      } catch (Exception e) {
        // The others need not wait, and say why this one failed.
        failed.compareAndSet(null, e);
        together.reset();
        throw failed.get();
      }
      return took;
    };
    ArrayNode micros = answer.putArray("micros");
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    try {
      for (Future<long[]> done : pool.invokeAll(Collections.nCopies(threads, task))) {
        Arrays.stream(done.get()).forEach(micros::add);
      }
    } finally {
      pool.shutdown();
    }
    answer.put("bytes", (long) threads * edits * writer.value.length);
    answer.put("nanos", times.get(1) - times.get(0));
  }

  /** What the threads of a log share. */
  private static final class Writer {
    private final WAL wal;
    private final byte[] value;
    private final MultiVersionConcurrencyControl mvcc = new MultiVersionConcurrencyControl();
    private final NavigableMap<byte[], Integer> scopes = new TreeMap<>(Bytes.BYTES_COMPARATOR);

    Writer(WAL wal, int bytes) {
      this.wal = wal;
      value = new byte[bytes];
      new Random(1).nextBytes(value);
      scopes.put(FAMILY, 0);
    }

    /** Appends as many edits as there is room for times, in microseconds. */
    void append(long[] took) throws IOException {
      for (int edit = 0; edit < took.length; edit++) {
        long began = System.nanoTime();
        long now = System.currentTimeMillis();
        WALEdit cells = new WALEdit();
        cells.add(new KeyValue(Bytes.toBytes(began), FAMILY, COLUMN, now, value));
        WALKeyImpl key =
            new WALKeyImpl(REGION.getEncodedNameAsBytes(), TABLE, now, mvcc, scopes);
        wal.sync(wal.appendData(REGION, key, cells));
        mvcc.complete(key.getWriteEntry());
        took[edit] = (System.nanoTime() - began) / 1000;
      }
    }
  }
}
