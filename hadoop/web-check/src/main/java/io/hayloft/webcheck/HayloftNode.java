package io.hayloft.webcheck;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.io.RandomAccessFile;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;

/** A Hayloft node: a process of its own, with its own configuration, directories and ports. */
public final class HayloftNode {
  /** Names the binary. */
  public static final String BINARY = "HAYLOFT_BIN";

  private static final long STOP_SECONDS = 20;
  private static final int TAIL_BYTES = 4096;
  /** The kernel kills a process when the thread that began it ends: this one lasts. */
  private static final ExecutorService SPAWNER =
      Executors.newSingleThreadExecutor(
          run -> {
            Thread thread = new Thread(run, "hayloft-spawner");
            thread.setDaemon(true);
            return thread;
          });

  /** Ends at once when the parent went before the kernel was asked for a signal at its end. */
  private static final String IF_PARENT_LIVES =
      "[ \"$PPID\" = \"$1\" ] || exit 1; shift; exec \"$@\"";

  private final File log;
  private final Process process;
  private final List<String> types;
  private boolean stopped;

  /**
   * Starts a node and does not wait for it.
   *
   * @param conf what the NameNode has, and a test has set
   * @param types storage types, one a volume
   * @throws IOException when the binary is missing or does not start
   */
  public HayloftNode(Path dir, Configuration conf, List<String> types) throws IOException {
    String binary = System.getenv(BINARY);
    if (binary == null || !new File(binary).canExecute()) {
      throw new IOException("no node binary: set " + BINARY + " to a built hayloft");
    }
    this.types = List.copyOf(types);
    Path site = Files.createDirectories(dir.resolve("conf"));
    writeSite(site, own(dir, conf));
    copyResource(conf, "dfs.https.server.keystore.resource", "ssl-server.xml", site);
    log = dir.resolve("node.log").toFile();
    String parent = Long.toString(ProcessHandle.current().pid());
    List<String> words =
        List.of(
            "setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", IF_PARENT_LIVES, "sh", parent,
            binary, "node", "--conf", site.toString());
    ProcessBuilder builder = new ProcessBuilder(words).redirectErrorStream(true);
    builder.redirectOutput(ProcessBuilder.Redirect.appendTo(log));
    try {
      process = SPAWNER.submit(builder::start).get();
      noteStart(dir.getParent().resolveSibling("started"));
    } catch (ExecutionException failed) {
      throw new IOException("starting " + words, failed.getCause());
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new IOException("interrupted while starting " + binary, interrupted);
    }
  }

  /** Where the suite sees that the nodes were these. */
  private void noteStart(Path list) throws IOException {
    Files.writeString(
        list, process.pid() + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
  }

  private Configuration own(Path dir, Configuration conf) throws IOException {
    Configuration own = new Configuration(conf);
    List<String> volumes = new ArrayList<>();
    for (int i = 0; i < types.size(); i++) {
      Path volume = Files.createDirectories(dir.resolve("data-" + i));
      volumes.add("[" + types.get(i) + "]" + volume.toUri());
    }
    own.set("dfs.datanode.data.dir", String.join(",", volumes));
    own.set("dfs.datanode.address", "127.0.0.1:0");
    own.set("dfs.datanode.ipc.address", "127.0.0.1:0");
    own.set("dfs.datanode.http.address", "127.0.0.1:0");
    own.set("dfs.datanode.https.address", "127.0.0.1:0");
    own.set("dfs.datanode.hostname", "127.0.0.1");
    return own;
  }

  /** Writes what is not a default, as an operator would. */
  private static void writeSite(Path site, Configuration conf) throws IOException {
    Configuration dfs = new Configuration(false);
    Configuration core = new Configuration(false);
    for (Map.Entry<String, String> entry : conf) {
      String key = entry.getKey();
      String[] sources = conf.getPropertySources(key);
      if (sources != null && sources[sources.length - 1].endsWith("-default.xml")) {
        continue;
      }
      (key.startsWith("dfs.") ? dfs : core).set(key, conf.get(key));
    }
    write(site.resolve("hdfs-site.xml"), dfs);
    write(site.resolve("core-site.xml"), core);
  }

  private static void write(Path file, Configuration conf) throws IOException {
    try (OutputStream out = Files.newOutputStream(file)) {
      conf.writeXml(out);
    }
  }

  private static void copyResource(Configuration conf, String key, String name, Path site)
      throws IOException {
    URL found = conf.getResource(conf.get(key, name));
    if (found != null) {
      try (var in = found.openStream()) {
        Files.copy(in, site.resolve(name));
      }
    }
  }

  /** How many volumes it has. */
  public int volumes() {
    return types.size();
  }

  /** Whether it was not stopped. */
  public boolean isWanted() {
    return !stopped;
  }

  /**
   * Fails when the process has ended by itself.
   *
   * @throws IOException with the end of its log
   */
  public void check() throws IOException {
    if (!stopped && !process.isAlive()) {
      throw new IOException("a node ended with " + process.exitValue() + ":\n" + tail());
    }
  }

  /**
   * Sends SIGTERM.
   *
   * @throws IOException when it had ended before
   */
  public void stop() throws IOException {
    check();
    stopped = true;
    process.destroy();
  }

  /**
   * Waits for the end, and makes it so after a time.
   *
   * @throws IOException when it did not end by itself
   */
  public void awaitEnd() throws IOException {
    try {
      if (process.waitFor(STOP_SECONDS, TimeUnit.SECONDS)) {
        return;
      }
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
    process.destroyForcibly();
    throw new IOException("a node still ran " + STOP_SECONDS + " s after SIGTERM:\n" + tail());
  }

  private String tail() throws IOException {
    try (RandomAccessFile file = new RandomAccessFile(log, "r")) {
      file.seek(Math.max(0, file.length() - TAIL_BYTES));
      byte[] bytes = new byte[(int) (file.length() - file.getFilePointer())];
      file.readFully(bytes);
      return new String(bytes, StandardCharsets.UTF_8);
    }
  }
}
