package io.hayloft.lab;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.EnumSet;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;

/** Files being written, by handle. */
final class Writers {
  private static final int BUFFER_BYTES = 1 << 20;

  /** An open file. The fields but acked are used by one request at a time. */
  private static final class Writer {
    DistributedFileSystem fs;
    FSDataOutputStream out;
    long seed;
    long position;
    volatile long written;
    volatile long acked;
    volatile boolean stop;
  }

  private final ConcurrentHashMap<String, Writer> writers = new ConcurrentHashMap<>();

  void register(Map<String, LabDriver.Operation> operations) {
    operations.put("create", (request, answer) -> open(request, answer, false));
    operations.put("append", (request, answer) -> open(request, answer, true));
    operations.put("write", this::write);
    operations.put("loop", this::loop);
    operations.put("hflush", this::hflush);
    operations.put("hsync", this::hsync);
    operations.put("progress", this::progress);
    operations.put("stopLoop", (request, answer) -> writer(request).stop = true);
    operations.put("close", this::close);
    operations.put("abandon", this::abandon);
    operations.put("put", this::put);
  }

  private Writer writer(ObjectNode request) {
    Writer writer = writers.get(Request.text(request, "handle"));
    if (writer == null) {
      throw new IllegalArgumentException("no open handle " + Request.text(request, "handle"));
    }
    return writer;
  }

  /**
   * Arguments: handle, path, seed, conf; for create also replication, blockSize, syncBlock; for
   * append also newBlock. The pattern goes on from the file's length.
   */
  private void open(ObjectNode request, ObjectNode answer, boolean append) throws IOException {
    Writer writer = start(request, append);
    if (writers.putIfAbsent(Request.text(request, "handle"), writer) != null) {
      throw new IllegalArgumentException("the handle is in use");
    }
    answer.put("position", writer.position);
  }

  private static Writer start(ObjectNode request, boolean append) throws IOException {
    Writer writer = new Writer();
    Path path = Request.path(request);
    writer.fs = Request.open(request);
    writer.seed = Request.number(request, "seed", 0);
    if (append) {
      EnumSet<CreateFlag> flags = EnumSet.of(CreateFlag.APPEND);
      if (request.path("newBlock").asBoolean(false)) {
        flags.add(CreateFlag.NEW_BLOCK);
      }
      writer.position = writer.fs.getFileStatus(path).getLen();
      writer.out = writer.fs.append(path, flags, 4096, null);
    } else {
      short replication = (short) Request.number(request, "replication", writer.fs.getDefaultReplication(path));
      long blockSize = Request.number(request, "blockSize", writer.fs.getDefaultBlockSize(path));
      EnumSet<CreateFlag> flags = EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE);
      if (request.path("syncBlock").asBoolean(false)) {
        flags.add(CreateFlag.SYNC_BLOCK);
      }
      writer.out = writer.fs.create(path, FsPermission.getFileDefault(), flags, 4096, replication, blockSize, null);
    }
    writer.acked = writer.position;
    writer.written = writer.position;
    return writer;
  }

  private static void write(Writer writer, long bytes, int chunk) throws IOException {
    byte[] data = new byte[chunk];
    for (long left = bytes; left > 0;) {
      int now = (int) Math.min(left, chunk);
      Pattern.fill(writer.seed, writer.position, data, now);
      writer.out.write(data, 0, now);
      writer.position += now;
      writer.written = writer.position;
      left -= now;
    }
  }

  /** Arguments: handle, bytes, chunk (size of the write calls). */
  private void write(ObjectNode request, ObjectNode answer) throws IOException {
    Writer writer = writer(request);
    write(writer, Request.number(request, "bytes", 0), (int) Request.number(request, "chunk", BUFFER_BYTES));
    answer.put("position", writer.position);
  }

  /**
   * Writes until bytes are written, stopLoop, or an error; each chunk is hflushed (sync: hsynced)
   * unless flush is false. Arguments: handle, bytes, chunk, pauseMillis. Results: acked, position,
   * failure (text, or absent).
   */
  private void loop(ObjectNode request, ObjectNode answer) {
    Writer writer = writer(request);
    long end = writer.position + Request.number(request, "bytes", Long.MAX_VALUE / 2);
    int chunk = (int) Request.number(request, "chunk", 65536);
    boolean flush = request.path("flush").asBoolean(true);
    boolean sync = request.path("sync").asBoolean(false);
    try {
      while (writer.position < end && !writer.stop) {
        write(writer, Math.min(chunk, end - writer.position), chunk);
        if (sync) {
          writer.out.hsync();
        } else if (flush) {
          writer.out.hflush();
        }
        if (sync || flush) {
          writer.acked = writer.position;
        }
        Files.sleep(Request.number(request, "pauseMillis", 0));
      }
    } catch (IOException e) {
      answer.put("failure", String.valueOf(e));
      e.printStackTrace(System.err);
    }
    writer.stop = false;
    answer.put("acked", writer.acked);
    answer.put("position", writer.position);
  }

  private void hflush(ObjectNode request, ObjectNode answer) throws IOException {
    Writer writer = writer(request);
    writer.out.hflush();
    writer.acked = writer.position;
    answer.put("acked", writer.acked);
  }

  /** Arguments: handle, updateLength. */
  private void hsync(ObjectNode request, ObjectNode answer) throws IOException {
    Writer writer = writer(request);
    if (request.path("updateLength").asBoolean(false)) {
      ((HdfsDataOutputStream) writer.out).hsync(EnumSet.of(HdfsDataOutputStream.SyncFlag.UPDATE_LENGTH));
    } else {
      writer.out.hsync();
    }
    writer.acked = writer.position;
    answer.put("acked", writer.acked);
  }

  private void progress(ObjectNode request, ObjectNode answer) throws IOException {
    Writer writer = writer(request);
    answer.put("acked", writer.acked);
    answer.put("position", writer.written);
  }

  private void close(ObjectNode request, ObjectNode answer) throws IOException {
    Writer writer = writer(request);
    writers.remove(Request.text(request, "handle"));
    try {
      writer.out.close();
    } finally {
      writer.fs.close();
    }
    answer.put("length", writer.position);
  }

  /**
   * Leaves the file open at the NameNode as a dead client would: streams cut, lease not renewed.
   */
  private void abandon(ObjectNode request, ObjectNode answer) throws IOException {
    Writer writer = writer(request);
    writers.remove(Request.text(request, "handle"));
    writer.fs.getClient().closeAllFilesBeingWritten(true);
    answer.put("acked", writer.acked);
  }

  /**
   * create, write and close in one: path, bytes, seed, chunk, replication, blockSize, syncBlock,
   * conf.
   */
  private void put(ObjectNode request, ObjectNode answer) throws IOException {
    Writer writer = start(request, request.path("appendTo").asBoolean(false));
    try {
      write(writer, Request.number(request, "bytes", 0), (int) Request.number(request, "chunk", BUFFER_BYTES));
      writer.out.close();
    } finally {
      writer.fs.close();
    }
    answer.put("length", writer.position);
  }
}
