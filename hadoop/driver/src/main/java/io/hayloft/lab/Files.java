package io.hayloft.lab;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.ReadOption;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DFSHedgedReadMetrics;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.ReadStatistics;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.DatanodeInfoWithStorage;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.io.ElasticByteBufferPool;
import org.apache.hadoop.io.IntWritable;
import org.apache.hadoop.io.SequenceFile;
import org.apache.hadoop.io.Text;

/** Operations on files that are not being written by us. */
final class Files {
  private static final int BUFFER_BYTES = 1 << 20;

  void register(Map<String, LabDriver.Operation> operations) {
    operations.put("read", this::read);
    operations.put("ranges", this::ranges);
    operations.put("status", this::status);
    operations.put("checksum", this::checksum);
    operations.put("truncate", this::truncate);
    operations.put("recoverLease", this::recoverLease);
    operations.put("closed", this::closed);
    operations.put("blocks", this::blocks);
    operations.put("many", this::many);
    operations.put("readMany", this::readMany);
    operations.put("delete", this::delete);
    operations.put("sequenceFile", this::sequenceFile);
  }

  /**
   * Arguments: path, offset (0), length (-1: to the end), seed (compare with the pattern), pread,
   * pauseMillis for each buffer of bytes, however small the pieces are that nodes send; mapped,
   * skipChecksums, hold (a local file, made with the first mapped bytes in hand, which are kept
   * until it is gone). Results: bytes, mismatch (file offset or -1), shortCircuit and zeroCopy (how
   * many of the bytes the client read by itself, and mapped).
   */
  private void read(ObjectNode request, ObjectNode answer) throws IOException {
    try (DistributedFileSystem fs = Request.open(request);
        FSDataInputStream in = fs.open(Request.path(request))) {
      long offset = Request.number(request, "offset", 0);
      long length = Request.number(request, "length", -1);
      answer.put("visible", ((HdfsDataInputStream) in).getVisibleLength());
      boolean pread = request.path("pread").asBoolean(false);
      if (!pread && offset > 0) {
        in.seek(offset);
      }
      readRange(in, request, offset, length, pread, answer);
      ReadStatistics read = ((HdfsDataInputStream) in).getReadStatistics();
      answer.put("shortCircuit", read.getTotalShortCircuitBytesRead());
      answer.put("zeroCopy", read.getTotalZeroCopyBytesRead());
      countHedged(fs, request, answer);
    }
  }

  /**
   * Where reads are hedged, hedgedOps and hedgedWins since this JVM began. The client has no public
   * way to its counters.
   */
  static void countHedged(DistributedFileSystem fs, ObjectNode request, ObjectNode answer)
      throws IOException {
    if (!request.path("conf").has("dfs.client.hedged.read.threadpool.size")) {
      return;
    }
    try {
      Method method = DFSClient.class.getDeclaredMethod("getHedgedReadMetrics");
      method.setAccessible(true);
      DFSHedgedReadMetrics metrics = (DFSHedgedReadMetrics) method.invoke(fs.getClient());
      answer.put("hedgedOps", metrics.getHedgedReadOps());
      answer.put("hedgedWins", metrics.getHedgedReadWins());
    } catch (ReflectiveOperationException e) {
      throw new IOException(e);
    }
  }

  private static void readRange(FSDataInputStream in, ObjectNode request, long offset, long length,
      boolean pread, ObjectNode answer) throws IOException {
    boolean verify = request.hasNonNull("seed");
    long seed = Request.number(request, "seed", 0);
    long pause = Request.number(request, "pauseMillis", 0);
    int bufferBytes = (int) Request.number(request, "buffer", BUFFER_BYTES);
    byte[] data = new byte[bufferBytes];
    byte[] scratch = new byte[bufferBytes];
    long position = offset;
    long mismatch = -1;
    while (length < 0 || position < offset + length) {
      int want = length < 0 ? data.length : (int) Math.min(data.length, offset + length - position);
      int got = request.path("mapped").asBoolean(false) ? readMapped(in, request, data, want)
          : pread ? in.read(position, data, 0, want) : in.read(data, 0, want);
      if (got < 0) {
        break;
      }
      int at = verify ? Pattern.firstDifference(seed, position, data, got, scratch) : -1;
      if (at >= 0 && mismatch < 0) {
        mismatch = position + at;
      }
      position += got;
      sleep(pause * got / data.length);
    }
    answer.put("bytes", position - offset);
    answer.put("mismatch", mismatch);
  }

  /** The next bytes, from a map of the node's file where the client may have one. */
  private static int readMapped(FSDataInputStream in, ObjectNode request, byte[] data, int want)
      throws IOException {
    EnumSet<ReadOption> options = EnumSet.allOf(ReadOption.class); // SKIP_CHECKSUMS
    options.removeIf(option -> !request.path("skipChecksums").asBoolean(false));
    ByteBuffer buffer = in.read(new ElasticByteBufferPool(), want, options);
    if (buffer == null) {
      return -1;
    }
    int got = buffer.remaining();
    if (request.hasNonNull("hold") && in.getPos() == got) {
      File hold = new File(Request.text(request, "hold"));
      hold.createNewFile();
      while (hold.exists()) {
        sleep(50);
      }
    }
    buffer.get(data, 0, got);
    in.releaseBuffer(buffer);
    return got;
  }

  /** Arguments: path, seed, ranges [[offset, length], ...]. Every range is read both ways. */
  private void ranges(ObjectNode request, ObjectNode answer) throws IOException {
    ArrayNode results = answer.putArray("ranges");
    try (DistributedFileSystem fs = Request.open(request);
        FSDataInputStream in = fs.open(Request.path(request))) {
      for (var range : request.path("ranges")) {
        long offset = range.get(0).asLong();
        long length = range.get(1).asLong();
        readRange(in, request, offset, length, true, results.addObject());
        in.seek(offset);
        readRange(in, request, offset, length, false, results.addObject());
      }
    }
  }

  /** Results: length, replication, blockSize, ecPolicy. */
  private void status(ObjectNode request, ObjectNode answer) throws IOException {
    try (DistributedFileSystem fs = Request.open(request)) {
      FileStatus status = fs.getFileStatus(Request.path(request));
      answer.put("length", status.getLen());
      answer.put("replication", status.getReplication());
      answer.put("blockSize", status.getBlockSize());
      answer.put("erasureCoded", status.isErasureCoded());
    }
  }

  /**
   * Arguments: path, length (optional), conf (dfs.checksum.combine.mode). Results: algorithm, hex.
   */
  private void checksum(ObjectNode request, ObjectNode answer) throws IOException {
    try (DistributedFileSystem fs = Request.open(request)) {
      long length = Request.number(request, "length", Long.MAX_VALUE);
      FileChecksum checksum = fs.getFileChecksum(Request.path(request), length);
      answer.put("algorithm", checksum == null ? null : checksum.getAlgorithmName());
      answer.put("hex", checksum == null ? null : java.util.HexFormat.of().formatHex(checksum.getBytes()));
    }
  }

  private void truncate(ObjectNode request, ObjectNode answer) throws IOException {
    try (DistributedFileSystem fs = Request.open(request)) {
      answer.put("done", fs.truncate(Request.path(request), Request.number(request, "length", 0)));
    }
  }

  private void recoverLease(ObjectNode request, ObjectNode answer) throws IOException {
    try (DistributedFileSystem fs = Request.open(request)) {
      answer.put("closed", fs.recoverLease(Request.path(request)));
    }
  }

  private void closed(ObjectNode request, ObjectNode answer) throws IOException {
    try (DistributedFileSystem fs = Request.open(request)) {
      answer.put("closed", fs.isFileClosed(Request.path(request)));
    }
  }

  /**
   * Results: underConstruction, blocks [{id, generation, pool, length, offset, corrupt, nodes}].
   */
  private void blocks(ObjectNode request, ObjectNode answer) throws IOException {
    try (DistributedFileSystem fs = Request.open(request)) {
      String path = Request.path(request).toUri().getPath();
      LocatedBlocks located = fs.getClient().getLocatedBlocks(path, 0, Long.MAX_VALUE);
      answer.put("underConstruction", located.isUnderConstruction());
      answer.put("length", located.getFileLength());
      ArrayNode blocks = answer.putArray("blocks");
      List<LocatedBlock> all = new ArrayList<>(located.getLocatedBlocks());
      if (located.getLastLocatedBlock() != null && !located.isLastBlockComplete()
          && !all.contains(located.getLastLocatedBlock())) {
        all.add(located.getLastLocatedBlock());
      }
      all.forEach(block -> describe(block, blocks.addObject()));
    }
  }

  private static void describe(LocatedBlock block, ObjectNode out) {
    out.put("id", block.getBlock().getBlockId());
    out.put("generation", block.getBlock().getGenerationStamp());
    out.put("pool", block.getBlock().getBlockPoolId());
    out.put("length", block.getBlockSize());
    out.put("offset", block.getStartOffset());
    out.put("corrupt", block.isCorrupt());
    ArrayNode nodes = out.putArray("nodes");
    byte[] indices = block instanceof LocatedStripedBlock striped ? striped.getBlockIndices() : null;
    int i = 0;
    for (DatanodeInfo node : block.getLocations()) {
      ObjectNode one = nodes.addObject();
      one.put("xfer", node.getXferAddr());
      if (node instanceof DatanodeInfoWithStorage withStorage) {
        one.put("storage", withStorage.getStorageID());
        one.put("type", String.valueOf(withStorage.getStorageType()));
      }
      if (indices != null) {
        one.put("index", indices[i]);
      }
      i++;
    }
  }

  /** Arguments: path (directory), count, bytes, seed: file i has seed + i. */
  private void many(ObjectNode request, ObjectNode answer) throws IOException {
    long seed = Request.number(request, "seed", 0);
    int bytes = (int) Request.number(request, "bytes", 1);
    byte[] data = new byte[bytes];
    try (DistributedFileSystem fs = Request.open(request)) {
      for (long i = 0; i < Request.number(request, "count", 1); i++) {
        Pattern.fill(seed + i, 0, data, bytes);
        try (FSDataOutputStream out = fs.create(new Path(Request.path(request), "f" + i))) {
          out.write(data);
        }
      }
    }
  }

  /** As many, but reads and compares. Results: bad (names). */
  private void readMany(ObjectNode request, ObjectNode answer) throws IOException {
    long seed = Request.number(request, "seed", 0);
    int bytes = (int) Request.number(request, "bytes", 1);
    byte[] data = new byte[bytes + 1];
    byte[] scratch = new byte[bytes + 1];
    ArrayNode bad = answer.putArray("bad");
    try (DistributedFileSystem fs = Request.open(request)) {
      for (long i = 0; i < Request.number(request, "count", 1); i++) {
        try (FSDataInputStream in = fs.open(new Path(Request.path(request), "f" + i))) {
          int got = in.readNBytes(data, 0, data.length);
          if (got != bytes || Pattern.firstDifference(seed + i, 0, data, got, scratch) >= 0) {
            bad.add("f" + i);
          }
        }
      }
    }
  }

  private void delete(ObjectNode request, ObjectNode answer) throws IOException {
    try (FileSystem fs = Request.openAny(request)) {
      answer.put("done", fs.delete(Request.path(request), true));
    }
  }

  /** Arguments: path, count, compression (NONE, RECORD, BLOCK). Keys are numbers, values texts. */
  private void sequenceFile(ObjectNode request, ObjectNode answer) throws IOException {
    try (DistributedFileSystem fs = Request.open(request);
        SequenceFile.Writer out = SequenceFile.createWriter(fs.getConf(),
            SequenceFile.Writer.file(fs.makeQualified(Request.path(request))),
            SequenceFile.Writer.keyClass(IntWritable.class),
            SequenceFile.Writer.valueClass(Text.class),
            SequenceFile.Writer.compression(
                SequenceFile.CompressionType.valueOf(Request.text(request, "compression"))))) {
      for (int i = 0; i < Request.number(request, "count", 1); i++) {
        out.append(new IntWritable(i), new Text("value " + i));
      }
    }
  }

  static void sleep(long millis) {
    if (millis > 0) {
      try {
        Thread.sleep(millis);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }
  }
}
