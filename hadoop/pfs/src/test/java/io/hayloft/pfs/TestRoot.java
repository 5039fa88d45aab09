package io.hayloft.pfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;

/** Where the tests work: the mount of {@code hayloft.pfs.test.root}, or a directory of target. */
public final class TestRoot {
  public static final URI PFS = URI.create("pfs:///");

  private TestRoot() {}

  /** A directory of its own for {@code test}, which may be there already. */
  public static Path of(String test) {
    String mount = System.getProperty("hayloft.pfs.test.root", "");
    Path above =
        mount.isEmpty() ? Path.of("target", "pfs-root").toAbsolutePath() : Path.of(mount);
    try {
      return Files.createDirectories(above.resolve(test));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Sets what a file system over {@code root} needs; the root is no mount point of its own. */
  public static Configuration configure(Configuration conf, Path root) {
    conf.set(PfsKeys.ROOT, root.toString());
    conf.setBoolean(PfsKeys.MUST_BE_MOUNT, false);
    conf.set("fs.AbstractFileSystem.pfs.impl", Pfs.class.getName());
    return conf;
  }

  /** A file system of its own over {@code root}. */
  public static FileSystem open(Path root) throws IOException {
    return open(configure(new Configuration(), root));
  }

  public static FileSystem open(Configuration conf) throws IOException {
    return FileSystem.newInstance(PFS, conf);
  }

  /** Runs a command, which must succeed, and gives what it printed. */
  static String run(String... command) throws Exception {
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes());
    assertTrue(process.waitFor(60, TimeUnit.SECONDS), Arrays.toString(command));
    assertEquals(0, process.exitValue(), Arrays.toString(command) + ": " + said);
    return said;
  }
}
