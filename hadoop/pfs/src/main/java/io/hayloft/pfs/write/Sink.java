package io.hayloft.pfs.write;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;

/** A file being written, from its start or its end on. Calls block as long as the mount does. */
public record Sink(FileChannel channel, Path file) implements Closeable {
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
