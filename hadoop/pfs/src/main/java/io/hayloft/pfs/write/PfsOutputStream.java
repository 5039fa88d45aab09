package io.hayloft.pfs.write;

import static org.apache.hadoop.fs.statistics.StreamStatisticNames.STREAM_WRITE_BYTES;
import static org.apache.hadoop.fs.statistics.StreamStatisticNames.STREAM_WRITE_EXCEPTIONS;
import static org.apache.hadoop.fs.statistics.impl.IOStatisticsBinding.iostatisticsStore;

import io.hayloft.pfs.io.Advice;
import io.hayloft.pfs.io.BufferPool;
import io.hayloft.pfs.io.Pending;
import io.hayloft.pfs.io.TimeLimit;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsAggregator;
import org.apache.hadoop.fs.statistics.IOStatisticsContext;
import org.apache.hadoop.fs.statistics.IOStatisticsSource;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsStore;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A file being written, with its copies. The stream gathers a large buffer; while the mount takes
 * one the caller fills the next, and all copies are written at the same time. An error of the
 * first file is the caller's; a copy that fails is left behind and healed later.
 */
public final class PfsOutputStream extends OutputStream
    implements Syncable, StreamCapabilities, IOStatisticsSource {
  private static final Logger LOG = LoggerFactory.getLogger(PfsOutputStream.class);

  /** The buffer of a stream that gets none of the pool. */
  private static final int OWN_BUFFER = 64 << 10;

  private static final Set<String> CAPABILITIES =
      Set.of(
          StreamCapabilities.HFLUSH,
          StreamCapabilities.HSYNC,
          StreamCapabilities.IOSTATISTICS,
          StreamCapabilities.IOSTATISTICS_CONTEXT);

  private final String name;
  private final long start;
  private final TimeLimit limit;
  private final BufferPool pool;
  private final boolean hflushForces;
  private final Finish finish;
  private final IOStatisticsStore counters =
      iostatisticsStore().withCounters(STREAM_WRITE_BYTES, STREAM_WRITE_EXCEPTIONS).build();
  private final IOStatisticsAggregator context =
      IOStatisticsContext.getCurrentIOStatisticsContext().getAggregator();

  // Looked up once: a write of a few bytes costs less than the look-up.
  private final AtomicLong bytesWritten = counters.getCounterReference(STREAM_WRITE_BYTES);
  private final byte[] oneByte = new byte[1];

  /** The first is the file itself. Guarded by this, as all below. */
  private final List<Sink> sinks;

  private Batch filling;
  private Batch writing;
  private List<Pending<Void>> calls = List.of();
  private IOException failure;
  private boolean closed;

  private interface SinkCall {
    void run(Sink sink) throws IOException;
  }

  /** Takes the sinks over. */
  public PfsOutputStream(
      String name,
      List<Sink> sinks,
      TimeLimit limit,
      BufferPool pool,
      boolean hflushForces,
      Finish finish) {
    this.name = name;
    this.start = sinks.get(0).start();
    this.sinks = new ArrayList<>(sinks);
    this.limit = limit;
    this.pool = pool;
    this.hflushForces = hflushForces;
    this.finish = finish;
  }

  /** Where in the file its first byte goes. */
  public long start() {
    return start;
  }

  @Override
  public synchronized void write(int one) throws IOException {
    oneByte[0] = (byte) one;
    write(oneByte, 0, 1);
  }

  @Override
  public synchronized void write(byte[] from, int offset, int length) throws IOException {
    Objects.checkFromIndexSize(offset, length, from.length);
    checkUsable();
    int done = 0;
    while (done < length) {
      if (filling == null) {
        filling = newBatch();
      }
      int part = Math.min(length - done, filling.buffer.remaining());
      filling.buffer.put(from, offset + done, part);
      done += part;
      if (!filling.buffer.hasRemaining()) {
        send();
      }
    }
    bytesWritten.addAndGet(length);
  }

  private Batch newBatch() throws IOException {
    ByteBuffer buffer = pool.takeIfLeft();
    if (buffer != null) {
      return new Batch(buffer, pool);
    }
    // Without a second buffer there is no overlap, but memory stays bounded.
    settle();
    buffer = pool.takeIfLeft();
    return buffer == null
        ? new Batch(ByteBuffer.allocate(OWN_BUFFER), null)
        : new Batch(buffer, pool);
  }

  /** Hands the filled buffer to the mount; waits for the one before it first. */
  private void send() throws IOException {
    settle();
    if (filling == null || filling.buffer.position() == 0) {
      return;
    }
    writing = filling;
    filling = null;
    writing.buffer.flip();
    Batch batch = writing;
    calls = new ArrayList<>();
    try {
      for (Sink sink : sinks) {
        ByteBuffer view = batch.buffer.asReadOnlyBuffer();
        batch.begin();
        calls.add(startWrite(batch, sink, view));
      }
    } catch (IOException e) {
      batch.end();
      throw failed(e);
    }
  }

  private Pending<Void> startWrite(Batch batch, Sink sink, ByteBuffer view) throws IOException {
    return limit.start(
        "write " + name,
        () -> {
          try {
            sink.write(view);
          } finally {
            batch.end();
          }
          return null;
        });
  }

  /** Waits until the mount has taken what it was handed. */
  private void settle() throws IOException {
    if (writing == null) {
      return;
    }
    Batch batch = writing;
    writing = null;
    awaitAll(calls);
    batch.release();
    calls = List.of();
    if (failure != null) {
      throw failure;
    }
  }

  /** Waits for a call of each sink, and drops copies that failed. */
  private void awaitAll(List<Pending<Void>> started) {
    List<Sink> bad = new ArrayList<>();
    for (int at = 0; at < started.size(); at++) {
      try {
        started.get(at).await();
      } catch (IOException e) {
        if (at == 0) {
          failed(e);
        } else {
          bad.add(sinks.get(at));
          LOG.warn("{}: the copy {} failed and is left to heal", name, sinks.get(at).file(), e);
        }
      }
    }
    sinks.removeAll(bad);
    bad.forEach(this::closeLeftBehind);
  }

  private void closeLeftBehind(Sink sink) {
    try {
      limit.startClose("close " + sink.file(), sink);
    } catch (IOException e) {
      LOG.debug("closing {}", sink.file(), e);
    }
  }

  private IOException failed(IOException e) {
    counters.incrementCounter(STREAM_WRITE_EXCEPTIONS);
    if (failure == null) {
      failure = Advice.on(name, e);
    }
    return failure;
  }

  /** One call for each sink, all at the same time. */
  private void onEach(String what, SinkCall call) throws IOException {
    List<Pending<Void>> started = new ArrayList<>();
    for (Sink sink : sinks) {
      started.add(
          limit.start(
              what + " " + name,
              () -> {
                call.run(sink);
                return null;
              }));
    }
    awaitAll(started);
    if (failure != null) {
      throw failure;
    }
  }

  /** Gives the mount what was gathered; other processes of this host see it then. */
  @Override
  public synchronized void flush() throws IOException {
    if (!closed) {
      checkUsable();
      send();
      settle();
    }
  }

  @Override
  public synchronized void hflush() throws IOException {
    checkUsable();
    flush();
    if (hflushForces) {
      onEach("hflush", sink -> sink.force(false));
    }
  }

  @Override
  public synchronized void hsync() throws IOException {
    checkUsable();
    flush();
    onEach("hsync", sink -> sink.force(true));
  }

  @Override
  public synchronized void close() throws IOException {
    if (closed) {
      return;
    }
    // The caller has this one already, and Java refuses to attach an error to itself.
    IOException told = failure;
    try {
      if (told == null) {
        flush();
      }
    } finally {
      closed = true;
      closeAll(told);
    }
    limit.run(
        "finish " + name,
        () -> {
          finish.closed(sinks);
          return null;
        });
  }

  private void closeAll(IOException told) throws IOException {
    if (writing != null) {
      writing.release();
      writing = null;
    }
    if (filling != null) {
      filling.release();
      filling = null;
    }
    IOException before = failure;
    try {
      onEach("close", Sink::close);
    } catch (IOException e) {
      if (before == null || e != before) {
        throw e;
      }
    } finally {
      context.aggregate(counters);
    }
    if (before != null) {
      throw before == told ? new IOException(name + ": an earlier write failed", told) : before;
    }
  }

  private void checkUsable() throws IOException {
    if (closed) {
      throw new IOException(name + ": " + FSExceptionMessages.STREAM_IS_CLOSED);
    }
    if (failure != null) {
      throw new IOException(name + ": an earlier write failed", failure);
    }
  }

  @Override
  public boolean hasCapability(String capability) {
    return CAPABILITIES.contains(capability.toLowerCase(Locale.ROOT));
  }

  @Override
  public IOStatistics getIOStatistics() {
    return counters;
  }
}
