package io.hayloft.pfs.layout;

import io.hayloft.pfs.PfsKeys;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;

/**
 * OrangeFS: a file's strips go to its data files in turn, each on a server. Its extended
 * attributes hold that in a binary form with numbers in place of servers; {@code pvfs2-viewdist}
 * reads them and prints names. This is by the documentation of PVFS 2.8 and OrangeFS 2.9, and was
 * not tried on a real one.
 */
public final class OrangeLayout implements LayoutProvider {
  /** More servers than any OrangeFS has; the tool itself prints 256. */
  private static final int SERVERS_MAX = 4096;

  private static final long STRIP_MAX = 1L << 40;

  private static final Pattern DISTRIBUTION = Pattern.compile("dist_name = (\\w{1,64})");
  private static final Pattern STRIP = Pattern.compile("strip_size:(\\d{1,13})");
  private static final Pattern COUNT =
      Pattern.compile("Number of datafiles/servers = (\\d{1,6})");

  /** The older name of the line is that of the documentation, the newer that of the tool. */
  private static final Pattern SERVER =
      Pattern.compile(
          "(?:Server|Datafile) (\\d{1,6}) - [a-z]{1,16}://([^:/,\\s]{1,255})[:/,].*"
              + " handle: \\d.*");

  private long limitMs = PfsKeys.LAYOUT_TIMEOUT_DEFAULT_MS;

  @Override
  public void initialize(Configuration conf, Path root) {
    limitMs = ToolOutput.limitMs(conf);
  }

  /** The tool takes one file. All files have the time of one, and those not reached are left. */
  @Override
  public Map<Path, FileLayout> locate(List<Path> files) throws IOException {
    Map<Path, FileLayout> found = new HashMap<>();
    long endNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(limitMs);
    String last = "";
    for (Path file : files) {
      long leftMs = TimeUnit.NANOSECONDS.toMillis(endNs - System.nanoTime());
      if (leftMs < 1) {
        break;
      }
      try {
        last = ToolOutput.of(List.of("pvfs2-viewdist", "-f", file.toString()), leftMs);
      } catch (IOException e) {
        if (found.isEmpty()) {
          throw e;
        }
        break;
      }
      FileLayout layout = parse(last);
      if (layout != null) {
        found.put(file, layout);
      }
    }
    if (found.isEmpty() && !files.isEmpty()) {
      throw new IOException(
          "pvfs2-viewdist told of no file: " + ToolOutput.shortened(last));
    }
    return found;
  }

  /**
   * What was printed of a file. Null if a part is missing, or for the distributions
   * {@code twod_stripe} and {@code varstrip_dist}, whose chunks differ in size.
   */
  static FileLayout parse(String output) {
    String distribution = "";
    long strip = 0;
    int count = -1;
    List<List<String>> servers = new ArrayList<>();
    for (String line : output.split("\n")) {
      Matcher name = DISTRIBUTION.matcher(line);
      Matcher size = STRIP.matcher(line);
      Matcher number = COUNT.matcher(line);
      Matcher server = SERVER.matcher(line);
      if (name.matches()) {
        distribution = name.group(1);
      } else if (size.matches()) {
        strip = Long.parseLong(size.group(1));
      } else if (number.matches()) {
        count = Integer.parseInt(number.group(1));
      } else if (server.matches()) {
        if (Integer.parseInt(server.group(1)) != servers.size() || servers.size() >= SERVERS_MAX) {
          return null;
        }
        servers.add(List.of(server.group(2)));
      }
    }
    if (servers.isEmpty() || servers.size() != count) {
      return null;
    }
    if (distribution.equals("basic_dist")) {
      return FileLayout.whole(servers.get(0));
    }
    boolean striped = distribution.equals("simple_stripe") && strip >= 1 && strip <= STRIP_MAX;
    return striped ? new FileLayout(strip, servers) : null;
  }
}
