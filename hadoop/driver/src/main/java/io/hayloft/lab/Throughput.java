package io.hayloft.lab;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.net.NetUtils;

/** Concurrent streams with figures, for benchmarks. Stream i uses file {@code path/s<i>}. */
final class Throughput {
  private static final int BUFFER_BYTES = 1 << 20;

  void register(Map<String, LabDriver.Operation> operations) {
    operations.put("writeStreams", this::write);
    operations.put("readStreams", this::read);
    operations.put("createFiles", this::create);
  }

  /**
   * Arguments: path, streams, bytes (each), replication, blockSize, favored ("host:port" of the
   * nodes to prefer). Results: bytes, nanos.
   */
  private void write(ObjectNode request, ObjectNode answer) throws Exception {
    long bytes = Request.number(request, "bytes", 1 << 20);
    short replication = (short) Request.number(request, "replication", 1);
    byte[] data = new byte[BUFFER_BYTES];
    // One buffer's worth of pattern, repeated: the client's cost of making data stays out.
    Pattern.fill(1, 0, data, data.length);
    try (DistributedFileSystem fs = Request.open(request)) {
      long blockSize = Request.number(request, "blockSize", fs.getDefaultBlockSize(Request.path(request)));
      InetSocketAddress[] favored = favored(request);
      run(request, answer, stream -> {
        Path path = new Path(Request.path(request), "s" + stream);
        try (FSDataOutputStream out = fs.create(path, FsPermission.getFileDefault(), true, 4096, replication, blockSize,
            null, favored)) {
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

  /** The nodes to prefer, or null. */
  private static InetSocketAddress[] favored(ObjectNode request) {
    List<InetSocketAddress> nodes = new ArrayList<>();
    request.path("favored").forEach(node -> nodes.add(NetUtils.createSocketAddr(node.asText())));
    return nodes.isEmpty() ? null : nodes.toArray(new InetSocketAddress[0]);
  }

  /** Arguments: path, streams. Results: bytes, nanos, equal (every byte as written). */
  private void read(ObjectNode request, ObjectNode answer) throws Exception {
    byte[] expected = new byte[BUFFER_BYTES];
    Pattern.fill(1, 0, expected, expected.length);
    answer.put("equal", true);
    try (DistributedFileSystem fs = Request.open(request)) {
      run(request, answer, stream -> {
        byte[] data = new byte[BUFFER_BYTES];
        long total = 0;
        boolean equal = true;
        try (FSDataInputStream in = fs.open(new Path(Request.path(request), "s" + stream))) {
          for (int got = in.readNBytes(data, 0, data.length); got > 0;
              got = in.readNBytes(data, 0, data.length)) {
            equal &= java.util.Arrays.mismatch(data, 0, got, expected, 0, got) < 0;
            total += got;
          }
        }
        if (!equal) {
          synchronized (answer) {
            answer.put("equal", false);
          }
        }
        return total;
      });
    }
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
