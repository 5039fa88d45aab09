package io.hayloft.pfs;

import java.io.FileWriter;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Cold sequential reads of one file over pfs and over file://, with small and large calls, in
 * turn; MB/s as median and spread. `scripts/pfs-mounted moosefs java -cp ... MountedBench`.
 */
public final class MountedBench {
  private static final long MIB = 1 << 20;
  private static final int[] SIZES = {4 << 10, 64 << 10, 1 << 20, 4 << 20};

  private MountedBench() {}

  /** Arguments: MiB of the file, rounds. */
  public static void main(String[] args) throws Exception {
    long bytes = MIB * (args.length > 0 ? Integer.parseInt(args[0]) : 512);
    int rounds = args.length > 1 ? Integer.parseInt(args[1]) : 5;
    String mount = System.getenv("PFS_MOUNT");
    Configuration conf = new Configuration();
    conf.set("fs.pfs.root", mount);
    FileSystem pfs = FileSystem.get(java.net.URI.create("pfs:///"), conf);
    FileSystem local = FileSystem.get(java.net.URI.create("file:///"), conf);
    write(pfs, new Path("/bench"), bytes);
    Map<String, List<Double>> figures = new LinkedHashMap<>();
    for (int round = 0; round < rounds; round++) {
      for (int size : SIZES) {
        measure(figures, "pfs " + size, pfs, new Path("/bench"), size, bytes);
        measure(figures, "file " + size, local, new Path(mount + "/bench"), size, bytes);
      }
    }
    System.out.println("| calls of | MB/s | least | most |\n|---|---|---|---|");
    figures.forEach(
        (name, all) -> {
          Collections.sort(all);
          System.out.printf(
              "| %s bytes | %.0f | %.0f | %.0f |%n",
              name, all.get(all.size() / 2), all.get(0), all.get(all.size() - 1));
        });
    pfs.delete(new Path("/bench"), false);
  }

  private static void write(FileSystem fs, Path path, long bytes) throws IOException {
    byte[] part = new byte[(int) MIB];
    new Random(1).nextBytes(part);
    try (OutputStream out = fs.create(path, true)) {
      for (long at = 0; at < bytes; at += part.length) {
        out.write(part);
      }
    }
  }

  private static void measure(
      Map<String, List<Double>> figures,
      String name,
      FileSystem fs,
      Path path,
      int size,
      long bytes)
      throws IOException {
    try (FileWriter caches = new FileWriter("/proc/sys/vm/drop_caches")) {
      caches.write("3");
    }
    byte[] part = new byte[size];
    long begun = System.nanoTime();
    long read = 0;
    try (InputStream in = fs.open(path)) {
      for (int n = in.read(part); n > 0; n = in.read(part)) {
        read += n;
      }
    }
    double seconds = (System.nanoTime() - begun) / 1e9;
    if (read != bytes) {
      throw new IOException(path + " has " + read + " of " + bytes + " bytes");
    }
    figures.computeIfAbsent(name, key -> new ArrayList<>()).add(bytes / seconds / 1e6);
  }
}
