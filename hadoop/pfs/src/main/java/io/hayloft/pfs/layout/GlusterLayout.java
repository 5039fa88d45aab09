package io.hayloft.pfs.layout;

import io.hayloft.pfs.PfsKeys;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;

/**
 * GlusterFS: a file is whole on its bricks, which the extended attribute {@code
 * trusted.glusterfs.pathinfo} names. Java reads no attribute of {@code trusted}, so {@code
 * getfattr} does; the kernel gives them to root alone, and to others under the name {@code
 * glusterfs.pathinfo}.
 */
public final class GlusterLayout implements LayoutProvider {
  private static final String[] NAMES = {"trusted.glusterfs.pathinfo", "glusterfs.pathinfo"};

  /** {@code <POSIX(/brick):host:/brick/file>}; a host may be an IPv6 address. */
  private static final Pattern BRICK =
      Pattern.compile("<POSIX\\([^)]{1,4096}\\):([^\\s/<>]{1,255}):/[^>]{0,8192}>");

  /** Stripes and dispersed volumes cut a file up: every brick has a part of every block. */
  private static final int BRICKS_MAX = 64;

  private long limitMs = PfsKeys.LAYOUT_TIMEOUT_DEFAULT_MS;

  /** Which name got the last answer: that depends on the user, so the next file has it too. */
  private volatile int answered;

  @Override
  public void initialize(Configuration conf, Path root) {
    limitMs = ToolOutput.limitMs(conf);
  }

  @Override
  public Map<Path, FileLayout> locate(List<Path> files) throws IOException {
    if (files.isEmpty()) {
      return Map.of();
    }
    Map<String, Path> byName = FileAttributes.byPrinted(files);
    String last = "";
    int first = answered;
    for (int turn = 0; turn < NAMES.length; turn++) {
      int tried = (first + turn) % NAMES.length;
      last = FileAttributes.print(NAMES[tried], files, limitMs);
      Map<Path, FileLayout> found = parse(last, byName);
      if (!found.isEmpty()) {
        answered = tried;
        return found;
      }
    }
    throw new IOException(
        "getfattr told no brick of " + files.get(0) + ": " + ToolOutput.shortened(last));
  }

  /** What was printed of the files asked for; a file without a brick is left out. */
  static Map<Path, FileLayout> parse(String output, Map<String, Path> asked) {
    Map<Path, FileLayout> found = new HashMap<>();
    FileAttributes.parse(output, asked, "pathinfo")
        .forEach(
            (file, bricks) -> {
              List<String> hosts = hosts(bricks);
              if (!hosts.isEmpty()) {
                found.put(file, FileLayout.whole(hosts));
              }
            });
    return found;
  }

  private static List<String> hosts(String bricks) {
    Set<String> hosts = new LinkedHashSet<>();
    Matcher brick = BRICK.matcher(bricks);
    while (brick.find() && hosts.size() < BRICKS_MAX) {
      hosts.add(brick.group(1));
    }
    return new ArrayList<>(hosts);
  }
}
