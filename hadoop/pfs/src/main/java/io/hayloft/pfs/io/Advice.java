package io.hayloft.pfs.io;

import java.io.IOException;
import java.util.Map;

/** Says what to do where the system only names its error. */
public final class Advice {
  /** What the C library says, and what helps. */
  private static final Map<String, String> ADVICE =
      Map.of(
          "No space left on device", "free space on the file system or add servers",
          "Disk quota exceeded", "free space below the quota or have it raised",
          "Read-only file system", "mount it writable, or see why the kernel made it read-only",
          "Stale file handle", "the file was replaced on a server: open it again, else mount again",
          "No such file or directory", "it was deleted while it was open: open or create it again",
          "Input/output error", "a server of the file system failed: see its log",
          "No such device or address", "no server that may hold the data runs: start one",
          "Transport endpoint is not connected", "the mount's own process died: mount again",
          "File name too long", "use names of at most 255 bytes",
          "Too many open files", "close streams, or raise the limit (ulimit -n)");

  private Advice() {}

  /** An error that names the file and what helps; {@code e} itself if nothing is known. */
  public static IOException on(String name, IOException e) {
    String message = e.getMessage();
    if (message == null) {
      return e;
    }
    for (Map.Entry<String, String> known : ADVICE.entrySet()) {
      if (message.endsWith(known.getKey())) {
        return new IOException(name + ": " + known.getKey() + ": " + known.getValue(), e);
      }
    }
    return e;
  }
}
