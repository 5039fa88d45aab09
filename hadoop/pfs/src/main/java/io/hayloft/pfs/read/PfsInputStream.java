package io.hayloft.pfs.read;

import static org.apache.hadoop.fs.statistics.impl.IOStatisticsBinding.iostatisticsStore;

import io.hayloft.pfs.io.Advice;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.ByteBufferPositionedReadable;
import org.apache.hadoop.fs.ByteBufferReadable;
import org.apache.hadoop.fs.CanUnbuffer;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsAggregator;
import org.apache.hadoop.fs.statistics.IOStatisticsContext;
import org.apache.hadoop.fs.statistics.IOStatisticsSource;
import org.apache.hadoop.fs.statistics.StreamStatisticNames;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsStore;

/**
 * An open file. Reads in sequence come from two large buffers after the second read, unless the
 * policy says otherwise; reads with a position go past the buffers and may run side by side.
 */
public final class PfsInputStream extends FSInputStream
    implements ByteBufferReadable,
        ByteBufferPositionedReadable,
        CanUnbuffer,
        StreamCapabilities,
        IOStatisticsSource {
  /** Reads that follow each other before it reads ahead. */
  private static final int SEQUENTIAL_READS = 2;

  /** The least that is read: callers that take bytes one by one would pay a call for each. */
  private static final int PAGE = 4096;

  private static final Set<String> CAPABILITIES =
      Set.of(
          StreamCapabilities.READBYTEBUFFER,
          StreamCapabilities.PREADBYTEBUFFER,
          StreamCapabilities.UNBUFFER,
          StreamCapabilities.VECTOREDIO,
          StreamCapabilities.IOSTATISTICS,
          StreamCapabilities.IOSTATISTICS_CONTEXT);

  private final Source source;
  private final String name;
  private final Reads reads;
  private final ReadPolicy policy;
  private final ReadAhead ahead;
  private final VectoredReads vectored;
  private final FileSystem.Statistics statistics;
  private final IOStatisticsStore counters =
      iostatisticsStore()
          .withCounters(
              StreamStatisticNames.STREAM_READ_BYTES,
              StreamStatisticNames.STREAM_READ_EXCEPTIONS,
              StreamStatisticNames.STREAM_READ_OPERATIONS,
              StreamStatisticNames.STREAM_READ_SEEK_OPERATIONS,
              StreamStatisticNames.STREAM_READ_SKIP_BYTES,
              StreamStatisticNames.STREAM_READ_SKIP_OPERATIONS,
              StreamStatisticNames.STREAM_READ_UNBUFFERED,
              StreamStatisticNames.STREAM_READ_VECTORED_OPERATIONS,
              StreamStatisticNames.STREAM_READ_VECTORED_INCOMING_RANGES)
          .build();
  private final IOStatisticsAggregator context =
      IOStatisticsContext.getCurrentIOStatisticsContext().getAggregator();

  // Looked up once: a read of a few bytes costs less than two look-ups.
  private final AtomicLong bytesRead =
      counters.getCounterReference(StreamStatisticNames.STREAM_READ_BYTES);
  private final AtomicLong readOperations =
      counters.getCounterReference(StreamStatisticNames.STREAM_READ_OPERATIONS);
  private final ByteBuffer oneByte = ByteBuffer.allocate(1);

  // All below are guarded by `this`, but `closed` is read without it.
  private long position;
  private long fetchedTo = -1;
  private int fetchesInSequence;
  private Chunk page;
  private volatile boolean closed;

  /** Takes the source over; {@code gap} is that of vectored reads. */
  public PfsInputStream(
      Source source,
      String name,
      Reads reads,
      ReadPolicy policy,
      int gap,
      FileSystem.Statistics statistics) {
    this.source = source;
    this.name = name;
    this.reads = reads;
    this.policy = policy;
    this.statistics = statistics;
    this.ahead = new ReadAhead(reads, source, name);
    this.vectored = new VectoredReads(reads, source, name, gap, this::count);
  }

  @Override
  public synchronized int read() throws IOException {
    oneByte.clear();
    return read(oneByte) < 0 ? -1 : oneByte.get(0) & 0xff;
  }

  @Override
  public synchronized int read(byte[] into, int offset, int length) throws IOException {
    checkOpen();
    validatePositionedReadArgs(position, into, offset, length);
    return length == 0 ? 0 : read(ByteBuffer.wrap(into, offset, length));
  }

  @Override
  public synchronized int read(ByteBuffer into) throws IOException {
    checkOpen();
    if (!into.hasRemaining()) {
      return 0;
    }
    try {
      int length = page != null && page.holds(position) ? page.copy(position, into) : 0;
      if (length == 0) {
        length = ahead.read(position, into);
        fetchedTo = length > 0 ? position + length : fetchedTo;
      }
      if (length == 0) {
        length = fetch(into);
      }
      if (length > 0) {
        position += length;
        count(length);
      }
      return length;
    } catch (IOException e) {
      throw failed(e);
    }
  }

  private IOException failed(IOException e) throws IOException {
    counters.incrementCounter(StreamStatisticNames.STREAM_READ_EXCEPTIONS);
    // What a read meets once the stream is closed has no cause worth to be told.
    checkOpen();
    return Advice.on(name, e);
  }

  /** Reads what no buffer holds. */
  private int fetch(ByteBuffer into) throws IOException {
    fetchesInSequence = position == fetchedTo ? fetchesInSequence + 1 : 0;
    if (policy == ReadPolicy.SEQUENTIAL
        || (policy == ReadPolicy.ADAPTIVE && fetchesInSequence >= SEQUENTIAL_READS)) {
      int length = ahead.begin(position, into, policy == ReadPolicy.SEQUENTIAL);
      if (length != 0) {
        fetchedTo = position + Math.max(length, 0);
        fetchesInSequence = SEQUENTIAL_READS;
        return length;
      }
    } else {
      ahead.drop();
    }
    return into.remaining() < PAGE ? fetchPage(into) : fetchDirect(position, into);
  }

  private int fetchPage(ByteBuffer into) throws IOException {
    ByteBuffer buffer = page == null ? ByteBuffer.allocate(PAGE) : page.buffer.clear();
    try {
      fetchDirect(position, buffer);
    } finally {
      page = new Chunk(buffer.flip(), position);
    }
    return page.holds(position) ? page.copy(position, into) : -1;
  }

  private int fetchDirect(long from, ByteBuffer into) throws IOException {
    int length = reads.readAt(source, name, from, into);
    fetchedTo = from + Math.max(length, 0);
    return length;
  }

  @Override
  public int read(long from, byte[] into, int offset, int length) throws IOException {
    checkOpen();
    validatePositionedReadArgs(from, into, offset, length);
    return length == 0 ? 0 : read(from, ByteBuffer.wrap(into, offset, length));
  }

  @Override
  public int read(long from, ByteBuffer into) throws IOException {
    checkOpen();
    if (from < 0) {
      throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK);
    }
    if (!into.hasRemaining()) {
      return 0;
    }
    try {
      int length = reads.readAt(source, name, from, into);
      if (length > 0) {
        count(length);
      }
      return length;
    } catch (IOException e) {
      throw failed(e);
    }
  }

  @Override
  public void readFully(long from, ByteBuffer into) throws IOException {
    long at = from;
    while (into.hasRemaining()) {
      int length = read(at, into);
      if (length < 0) {
        throw new EOFException(FSExceptionMessages.EOF_IN_READ_FULLY);
      }
      at += length;
    }
  }

  private void count(int length) {
    bytesRead.addAndGet(length);
    readOperations.incrementAndGet();
    if (statistics != null) {
      statistics.incrementBytesRead(length);
    }
  }

  @Override
  public int minSeekForVectorReads() {
    return PAGE;
  }

  @Override
  public int maxReadSizeForVectorReads() {
    return reads.large().size();
  }

  @Override
  public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate)
      throws IOException {
    readVectored(ranges, allocate, buffer -> {});
  }

  @Override
  public void readVectored(
      List<? extends FileRange> ranges,
      IntFunction<ByteBuffer> allocate,
      Consumer<ByteBuffer> release)
      throws IOException {
    checkOpen();
    Objects.requireNonNull(release, "release");
    counters.incrementCounter(StreamStatisticNames.STREAM_READ_VECTORED_OPERATIONS);
    counters.incrementCounter(
        StreamStatisticNames.STREAM_READ_VECTORED_INCOMING_RANGES, ranges.size());
    vectored.start(ranges, allocate, release);
  }

  @Override
  public synchronized void seek(long to) throws IOException {
    checkOpen();
    if (to < 0) {
      throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK + ": " + to);
    }
    if (to != position) {
      counters.incrementCounter(StreamStatisticNames.STREAM_READ_SEEK_OPERATIONS);
    }
    position = to;
  }

  @Override
  public synchronized long skip(long count) throws IOException {
    checkOpen();
    counters.incrementCounter(StreamStatisticNames.STREAM_READ_SKIP_OPERATIONS);
    long skipped = Math.max(0, Math.min(count, source.length() - position));
    position += skipped;
    counters.incrementCounter(StreamStatisticNames.STREAM_READ_SKIP_BYTES, skipped);
    return skipped;
  }

  @Override
  public synchronized long getPos() {
    return position;
  }

  @Override
  public boolean seekToNewSource(long target) {
    return false;
  }

  @Override
  public synchronized int available() throws IOException {
    checkOpen();
    return (int) Math.min(Integer.MAX_VALUE, Math.max(0, source.length() - position));
  }

  /** Gives the buffers back; the file stays open. */
  @Override
  public synchronized void unbuffer() {
    if (!closed) {
      counters.incrementCounter(StreamStatisticNames.STREAM_READ_UNBUFFERED);
      ahead.drop();
      page = null;
    }
  }

  @Override
  public void close() throws IOException {
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
      ahead.drop();
      page = null;
    }
    context.aggregate(counters);
    reads.limit().runClose("close " + name, source);
  }

  private void checkOpen() throws IOException {
    if (closed) {
      throw new IOException(name + ": " + FSExceptionMessages.STREAM_IS_CLOSED);
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

  @Override
  public String toString() {
    return "PfsInputStream of " + name + " at " + getPos();
  }
}
