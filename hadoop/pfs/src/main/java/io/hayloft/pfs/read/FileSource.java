package io.hayloft.pfs.read;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** One file. */
public final class FileSource implements Source {
  private final FileChannel channel;
  private final long length;

  private FileSource(FileChannel channel) throws IOException {
    this.channel = channel;
    this.length = channel.size();
  }

  /** Opens the file. */
  public static FileSource open(Path file) throws IOException {
    FileChannel channel = FileChannel.open(file, StandardOpenOption.READ);
    try {
      return new FileSource(channel);
    } catch (IOException e) {
      channel.close();
      throw e;
    }
  }

  @Override
  public int read(ByteBuffer into, long position) throws IOException {
    return channel.read(into, position);
  }

  @Override
  public long length() {
    return length;
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }
}
