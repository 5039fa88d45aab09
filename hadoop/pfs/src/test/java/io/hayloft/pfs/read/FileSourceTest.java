package io.hayloft.pfs.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Handles that the servers forget; GlusterFaults has those of a real mount. */
class FileSourceTest {
  @TempDir Path dir;
  private Path file;
  private final AtomicInteger opened = new AtomicInteger();
  private volatile int staleHandles;
  private String says = "Stale file handle";

  @BeforeEach
  void write() throws IOException {
    file = Files.writeString(dir.resolve("file"), "content");
  }

  /** A handle that is stale if it is one of the first. */
  private FileSource.Handle open(Path at) throws IOException {
    int number = opened.incrementAndGet();
    byte[] bytes = Files.readAllBytes(at);
    return new FileSource.Handle() {
      @Override
      public int read(ByteBuffer into, long position) throws IOException {
        if (number <= staleHandles) {
          throw new IOException(says);
        }
        into.put(bytes, (int) position, bytes.length - (int) position);
        return bytes.length - (int) position;
      }

      @Override
      public long size() {
        return bytes.length;
      }

      @Override
      public void close() throws IOException {
        if (number <= staleHandles) {
          throw new IOException(says);
        }
      }
    };
  }

  @Test
  void theSameFileIsOpenedAgain() throws IOException {
    try (FileSource source = FileSource.open(file, this::open)) {
      staleHandles = 1;
      ByteBuffer into = ByteBuffer.allocate(7);
      assertEquals(7, source.read(into, 0));
      assertEquals("content", new String(into.array()));
      assertEquals(2, opened.get());
    }
  }

  @Test
  void aHandleThatIsStaleAgainIsAnError() throws IOException {
    try (FileSource source = FileSource.open(file, this::open)) {
      staleHandles = 2;
      IOException e =
          assertThrows(IOException.class, () -> source.read(ByteBuffer.allocate(7), 0));
      assertEquals(says, e.getMessage());
      assertEquals(2, opened.get(), "it is not tried for ever");
    }
  }

  @Test
  void anotherFileOfTheNameIsNotReadInItsPlace() throws IOException {
    try (FileSource source = FileSource.open(file, this::open)) {
      Path other = Files.writeString(dir.resolve("other"), "CONTENT");
      Files.move(other, file, java.nio.file.StandardCopyOption.REPLACE_EXISTING);
      expectReplaced(source);
    }
  }

  @Test
  void aFileThatIsGoneIsToldAsSuch() throws IOException {
    says = "No such file or directory";
    FileSource source = FileSource.open(file, this::open);
    Files.delete(file);
    expectReplaced(source);
    source.close();
  }

  private void expectReplaced(FileSource source) {
    staleHandles = 1;
    IOException e = assertThrows(IOException.class, () -> source.read(ByteBuffer.allocate(7), 0));
    assertTrue(e.getMessage().endsWith("while it was open; open it again"), e.getMessage());
    assertEquals(1, opened.get());
  }

  @Test
  void otherErrorsOpenNothing() throws IOException {
    says = "Input/output error";
    FileSource source = FileSource.open(file, this::open);
    staleHandles = 1;
    IOException e = assertThrows(IOException.class, () -> source.read(ByteBuffer.allocate(7), 0));
    assertEquals(says, e.getMessage());
    assertEquals(1, opened.get());
  }
}
