package io.hayloft.lab;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.ReadOption;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.ReadStatistics;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.io.ElasticByteBufferPool;
import org.apache.hadoop.net.NetUtils;

/** Concurrent streams with figures, for benchmarks. Stream i uses file {@code path/s<i>}. */
final class Throughput {
  private static final int BUFFER_BYTES = 1 << 20;
  /** Records of a first log: writers are known by it, as those of HBase are after theirs. */
  private static final int FIRST_RECORDS = 128;

  void register(Map<String, LabDriver.Operation> operations) {
    operations.put("writeStreams", this::write);
    operations.put("readStreams", this::read);
    operations.put("preads", this::preads);
    operations.put("createFiles", this::create);
    operations.put("writeLogs", this::log);
  }

  /**
   * Arguments: path, streams, bytes (each), replication, blockSize, favored ("host:port" of the
   * nodes to prefer). Results: bytes, nanos. Any file system; only HDFS has favored nodes.
   */
  private void write(ObjectNode request, ObjectNode answer) throws Exception {
    long bytes = Request.number(request, "bytes", 1 << 20);
    short replication = (short) Request.number(request, "replication", 1);
    byte[] data = new byte[BUFFER_BYTES];
    // One buffer's worth of pattern, repeated: the client's cost of making data stays out.
    Pattern.fill(1, 0, data, data.length);
    try (FileSystem fs = Request.openAny(request)) {
      long byDefault = fs.getDefaultBlockSize(Request.path(request));
      long blockSize = Request.number(request, "blockSize", byDefault);
      InetSocketAddress[] favored = favored(request);
      run(request, answer, stream -> {
        Path path = new Path(Request.path(request), "s" + stream);
        try (FSDataOutputStream out =
            fs instanceof DistributedFileSystem hdfs
                ? hdfs.create(path, FsPermission.getFileDefault(), true, 4096, replication,
                    blockSize, null, favored)
                : fs.create(path, true, 4096, replication, blockSize)) {
          for (long left = bytes; left > 0; left -= data.length) {
            out.write(data, 0, (int) Math.min(left, data.length));
          }
        }
        return bytes;
      });
    }
  }

  /**
   * Creates small files, one after the other in each stream. Arguments: path, streams, files (of
   * each), bytes, favored. Results: bytes, nanos, micros (from create to the end of close, of each
   * file).
   */
  private void create(ObjectNode request, ObjectNode answer) throws Exception {
    byte[] data = new byte[(int) Request.number(request, "bytes", 10_000)];
    Pattern.fill(1, 0, data, data.length);
    long files = Request.number(request, "files", 1);
    ArrayNode micros = answer.putArray("micros");
    try (DistributedFileSystem fs = Request.open(request)) {
      InetSocketAddress[] favored = favored(request);
      run(request, answer, stream -> {
        for (long file = 0; file < files; file++) {
          Path path = new Path(Request.path(request), "c" + stream + "/s" + file);
          long began = System.nanoTime();
          try (FSDataOutputStream out = fs.create(path, FsPermission.getFileDefault(), true, 4096, (short) 1,
              fs.getDefaultBlockSize(path), null, favored)) {
            out.write(data);
          }
          long took = (System.nanoTime() - began) / 1000;
          synchronized (micros) {
            micros.add(took);
          }
        }
        return files * data.length;
      });
    }
  }

  /**
   * Writes logs: each record is hflushed, or hsynced. Each stream first writes and closes a short
   * log that does not count, then all begin together on one log each, and none closes its log
   * before all have ended: a close sleeps in the client while the NameNode waits for the block.
   * Arguments: path, streams, records (of each log), bytes (of a record), sync, favored.
   * Results: bytes, nanos (from the first record's write to the last one's flush), micros (from
   * write to the end of the flush, of each record).
   */
  private void log(ObjectNode request, ObjectNode answer) throws Exception {
    byte[] data = new byte[(int) Request.number(request, "bytes", 1024)];
    Pattern.fill(1, 0, data, data.length);
    int records = (int) Request.number(request, "records", 1);
    boolean sync = request.path("sync").asBoolean(false);
    ArrayNode micros = answer.putArray("micros");
    CyclicBarrier together = new CyclicBarrier((int) Request.number(request, "streams", 1));
    AtomicLong first = new AtomicLong(Long.MAX_VALUE);
    AtomicLong last = new AtomicLong(Long.MIN_VALUE);
    AtomicReference<Exception> failed = new AtomicReference<>();
    try (DistributedFileSystem fs = Request.open(request)) {
      InetSocketAddress[] favored = favored(request);
      run(request, answer, stream -> {
        Path path = new Path(Request.path(request), "c" + stream);
        try (FSDataOutputStream out = logFile(fs, new Path(path, "s0"), favored)) {
          append(out, data, sync, new long[Math.max(FIRST_RECORDS, records / 10)]);
        }
        long[] took = new long[records];
        try (FSDataOutputStream out = logFile(fs, new Path(path, "s1"), favored)) {
          append(out, data, sync, new long[1 + records / 10]);
          together.await(5, TimeUnit.MINUTES);
          first.accumulateAndGet(System.nanoTime(), Math::min);
          append(out, data, sync, took);
          last.accumulateAndGet(System.nanoTime(), Math::max);
          together.await(5, TimeUnit.MINUTES);
        } catch (Exception e) {
          // The others need not wait, and say why this one failed.
          failed.compareAndSet(null, e);
          together.reset();
          throw failed.get();
        }
        synchronized (micros) {
          for (long one : took) {
            micros.add(one);
          }
        }
        return (long) records * data.length;
      });
    }
    answer.put("nanos", last.get() - first.get());
  }

  private static FSDataOutputStream logFile(
      DistributedFileSystem fs, Path path, InetSocketAddress[] favored) throws IOException {
    return fs.create(path, FsPermission.getFileDefault(), true, 4096, (short) 1,
        fs.getDefaultBlockSize(path), null, favored);
  }

  /** Appends as many records as there is room for times, in microseconds. */
  private static void append(FSDataOutputStream out, byte[] data, boolean sync, long[] took)
      throws IOException {
    for (int record = 0; record < took.length; record++) {
      long began = System.nanoTime();
      out.write(data);
      if (sync) {
        out.hsync();
      } else {
        out.hflush();
      }
      took[record] = (System.nanoTime() - began) / 1000;
    }
  }

  /** The nodes to prefer, or null. */
  private static InetSocketAddress[] favored(ObjectNode request) {
    List<InetSocketAddress> nodes = new ArrayList<>();
    request.path("favored").forEach(node -> nodes.add(NetUtils.createSocketAddr(node.asText())));
    return nodes.isEmpty() ? null : nodes.toArray(new InetSocketAddress[0]);
  }

  /**
   * Arguments: path, streams, buffer (bytes of a call: a divisor or a multiple of a MiB), policy
   * (of openFile), pread (calls with a position), mapped (maps of the node's files, without
   * checksums). Results: bytes, nanos, equal (every byte as written), and those of {@link #count}.
   */
  private void read(ObjectNode request, ObjectNode answer) throws Exception {
    int buffer = (int) Request.number(request, "buffer", BUFFER_BYTES);
    String policy = request.path("policy").asText("");
    boolean pread = request.path("pread").asBoolean(false);
    boolean mapped = request.path("mapped").asBoolean(false);
    byte[] expected = expected(buffer);
    answer.put("equal", true);
    try (FileSystem fs = Request.openAny(request)) {
      run(request, answer, stream -> {
        byte[] data = new byte[buffer];
        long total = 0;
        boolean equal = true;
        Path path = new Path(Request.path(request), "s" + stream);
        try (FSDataInputStream in = open(fs, path, policy)) {
          if (mapped) {
            ByteBuffer got;
            while ((got = map(in, buffer - (int) (total % buffer))) != null) {
              int from = (int) (total % expected.length);
              equal &= got.equals(ByteBuffer.wrap(expected, from, got.remaining()));
              total += got.remaining();
              in.releaseBuffer(got);
            }
          }
          int got;
          while (!mapped && (got = fill(in, pread, total, data)) > 0) {
            int from = (int) (total % expected.length);
            equal &= java.util.Arrays.mismatch(data, 0, got, expected, from, from + got) < 0;
            total += got;
          }
          count(in, answer);
        }
        differs(!equal, answer);
        return total;
      });
    }
  }

  /**
   * Reads at random multiples of {@code bytes}, one after the other in each stream. Arguments:
   * path, streams, files (of each, {@code c<stream>/s<i>}; without it one, {@code s<stream>}), ops
   * (of each), bytes (a divisor of a MiB). The files are open before the time begins. Results:
   * bytes, nanos, micros (of each read), equal, and those of {@link #count} and of {@link
   * Files#countHedged}.
   */
  private void preads(ObjectNode request, ObjectNode answer) throws Exception {
    int bytes = (int) Request.number(request, "bytes", 64 << 10);
    int ops = (int) Request.number(request, "ops", 1);
    byte[] expected = expected(bytes);
    ArrayNode micros = answer.putArray("micros");
    answer.put("equal", true);
    List<List<FSDataInputStream>> open = new ArrayList<>();
    try (FileSystem fs = Request.openAny(request)) {
      for (int stream = 0; stream < Request.number(request, "streams", 1); stream++) {
        open.add(new ArrayList<>());
        long files = Request.number(request, "files", 0);
        for (long file = 0; file < Math.max(files, 1); file++) {
          String name = files > 0 ? "c" + stream + "/s" + file : "s" + stream;
          open.get(stream).add(fs.open(new Path(Request.path(request), name)));
        }
      }
      run(request, answer, stream -> {
        Random random = new Random(stream);
        byte[] data = new byte[bytes];
        long[] took = new long[ops];
        boolean equal = true;
        for (int op = 0; op < ops; op++) {
          FSDataInputStream in = open.get(stream).get(op % open.get(stream).size());
          long at = random.nextLong(((HdfsDataInputStream) in).getVisibleLength() / bytes) * bytes;
          long began = System.nanoTime();
          in.readFully(at, data);
          took[op] = (System.nanoTime() - began) / 1000;
          int from = (int) (at % expected.length);
          equal &= java.util.Arrays.equals(data, 0, bytes, expected, from, from + bytes);
        }
        differs(!equal, answer);
        synchronized (micros) {
          for (long one : took) {
            micros.add(one);
          }
        }
        return (long) ops * bytes;
      });
      for (List<FSDataInputStream> files : open) {
        for (FSDataInputStream in : files) {
          count(in, answer);
          in.close();
        }
      }
      if (fs instanceof DistributedFileSystem hdfs) {
        Files.countHedged(hdfs, request, answer);
      }
    }
  }

  private static void differs(boolean differs, ObjectNode answer) {
    if (differs) {
      synchronized (answer) {
        answer.put("equal", false);
      }
    }
  }

  /**
   * Adds to {@code shortCircuit} and {@code zeroCopy} how much of HDFS's bytes the client read by
   * itself, and mapped.
   */
  private static void count(FSDataInputStream in, ObjectNode answer) {
    if (in instanceof HdfsDataInputStream hdfs) {
      ReadStatistics read = hdfs.getReadStatistics();
      synchronized (answer) {
        long alone = answer.path("shortCircuit").asLong(0) + read.getTotalShortCircuitBytesRead();
        long mapped = answer.path("zeroCopy").asLong(0) + read.getTotalZeroCopyBytesRead();
        answer.put("shortCircuit", alone);
        answer.put("zeroCopy", mapped);
      }
    }
  }

  /** The next bytes, from a map of the node's file where there may be one; null at the end. */
  private static ByteBuffer map(FSDataInputStream in, int most) throws IOException {
    return in.read(new ElasticByteBufferPool(), most, EnumSet.of(ReadOption.SKIP_CHECKSUMS));
  }

  /** What every {@code buffer} bytes of a file are, once or several times. */
  private static byte[] expected(int buffer) {
    if (buffer < 1 || BUFFER_BYTES % buffer != 0 && buffer % BUFFER_BYTES != 0) {
      throw new IllegalArgumentException(
          "buffer must be a divisor or a multiple of " + BUFFER_BYTES);
    }
    byte[] expected = new byte[Math.max(buffer, BUFFER_BYTES)];
    Pattern.fill(1, 0, expected, BUFFER_BYTES);
    for (int at = BUFFER_BYTES; at < expected.length; at += BUFFER_BYTES) {
      System.arraycopy(expected, 0, expected, at, BUFFER_BYTES);
    }
    return expected;
  }

  private static FSDataInputStream open(FileSystem fs, Path path, String policy) throws Exception {
    if (policy.isEmpty()) {
      return fs.open(path);
    }
    FutureDataInputStreamBuilder builder = fs.openFile(path);
    builder.opt("fs.option.openfile.read.policy", policy);
    return builder.build().get();
  }

  /** Reads until {@code data} is full or the file ends; gives the bytes. */
  private static int fill(FSDataInputStream in, boolean pread, long from, byte[] data)
      throws IOException {
    if (!pread) {
      return in.readNBytes(data, 0, data.length);
    }
    int got = 0;
    while (got < data.length) {
      int some = in.read(from + got, data, got, data.length - got);
      if (some < 0) {
        break;
      }
      got += some;
    }
    return got;
  }

  private interface Stream {
    long run(int stream) throws Exception;
  }

  private static void run(ObjectNode request, ObjectNode answer, Stream stream) throws Exception {
    int streams = (int) Request.number(request, "streams", 1);
    ExecutorService pool = Executors.newFixedThreadPool(streams);
    try {
      List<Callable<Long>> tasks = new ArrayList<>();
      for (int i = 0; i < streams; i++) {
        int index = i;
        tasks.add(() -> stream.run(index));
      }
      long start = System.nanoTime();
      long bytes = 0;
      for (Future<Long> future : pool.invokeAll(tasks)) {
        bytes += future.get();
      }
      answer.put("nanos", System.nanoTime() - start);
      answer.put("bytes", bytes);
    } finally {
      pool.shutdown();
    }
  }
}
