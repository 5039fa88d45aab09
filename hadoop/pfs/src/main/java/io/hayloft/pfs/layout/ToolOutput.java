package io.hayloft.pfs.layout;

import io.hayloft.pfs.PfsKeys;
import io.hayloft.pfs.io.Limits;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.conf.Configuration;

/** Runs a tool of a file system, for a limited time and a limited output. */
final class ToolOutput {
  private static final int BYTES_MAX = 16 << 20;

  private ToolOutput() {}

  /** How long the configuration lets a tool run. */
  static long limitMs(Configuration conf) {
    long ms =
        conf.getTimeDuration(
            PfsKeys.LAYOUT_TIMEOUT, PfsKeys.LAYOUT_TIMEOUT_DEFAULT_MS, TimeUnit.MILLISECONDS);
    return Limits.checked(PfsKeys.LAYOUT_TIMEOUT, ms, 1, TimeUnit.DAYS.toMillis(1));
  }

  /** The start of an output, for an error. */
  static String shortened(String output) {
    String line = output.strip();
    return line.length() > 200 ? line.substring(0, 200) + "..." : line;
  }

  /** What the tool printed to no input; see {@link #of(List, String, long)}. */
  static String of(List<String> command, long limitMs) throws IOException {
    return of(command, "", limitMs);
  }

  /**
   * What the tool printed to an input, errors too. The exit code says little, since one bad file
   * of many makes it 1; the parser judges what was printed.
   */
  static String of(List<String> command, String input, long limitMs) throws IOException {
    Process process = start(command);
    CompletableFuture<byte[]> output = new CompletableFuture<>();
    inBackground(() -> read(process.getInputStream(), output));
    // A tool that reads nothing, or prints before it has read all, makes no caller wait.
    inBackground(() -> write(input, process.getOutputStream()));
    try {
      return new String(output.get(limitMs, TimeUnit.MILLISECONDS), StandardCharsets.UTF_8);
    } catch (TimeoutException e) {
      throw new IOException(
          command.get(0) + ": no end in " + limitMs + " ms (" + PfsKeys.LAYOUT_TIMEOUT + ")", e);
    } catch (ExecutionException e) {
      throw new IOException(command.get(0) + ": " + e.getCause().getMessage(), e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted: " + command.get(0));
    } finally {
      process.destroyForcibly();
    }
  }

  private static Process start(List<String> command) throws IOException {
    try {
      ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
      // A tool in Python would put its errors into the middle of lines that it holds back.
      builder.environment().put("PYTHONUNBUFFERED", "1");
      return builder.start();
    } catch (IOException e) {
      throw new IOException(
          "cannot run " + command.get(0) + ": install it on this host and put it into PATH", e);
    }
  }

  private static void inBackground(Runnable work) {
    Thread thread = new Thread(work, "pfs-layout-tool");
    thread.setDaemon(true);
    thread.start();
  }

  private static void write(String input, OutputStream to) {
    try (to) {
      to.write(input.getBytes(StandardCharsets.UTF_8));
    } catch (IOException e) {
      // The tool has ended; what it printed says why.
    }
  }

  private static void read(InputStream from, CompletableFuture<byte[]> output) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    byte[] part = new byte[8192];
    try {
      for (int length = from.read(part); length >= 0; length = from.read(part)) {
        if (bytes.size() + length > BYTES_MAX) {
          throw new IOException("printed more than " + BYTES_MAX + " bytes");
        }
        bytes.write(part, 0, length);
      }
      output.complete(bytes.toByteArray());
    } catch (IOException e) {
      output.completeExceptionally(e);
    }
  }
}
