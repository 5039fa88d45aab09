package io.hayloft.pfs.write;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;

/** A file being written, from {@code start} on, its end. Calls block as long as the mount does. */
public record Sink(FileChannel channel, Path file, long start) implements Closeable {
  /** To be written from its start. */
  public Sink(FileChannel channel, Path file) {
    this(channel, file, 0);
  }

  void write(ByteBuffer from) throws IOException {
    while (from.hasRemaining()) {
      channel.write(from);
    }
  }

  void force(boolean withMetadata) throws IOException {
    channel.force(withMetadata);
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }
}
