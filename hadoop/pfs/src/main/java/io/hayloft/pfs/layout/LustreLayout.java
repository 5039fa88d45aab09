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
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;

/**
 * Lustre: {@code lfs getstripe} prints on which OSTs a file's stripes lie, and {@code lctl} which
 * server each OST is connected to. Where {@code lctl} may not tell, {@code fs.pfs.hosts} does, with
 * names such as OST000a. This is by the documentation of Lustre 2.15, and was not tried on a real
 * one.
 */
public final class LustreLayout implements LayoutProvider {
  private static final long KEPT_NS = TimeUnit.MINUTES.toNanos(10);
  private static final long FAILURE_KEPT_NS = TimeUnit.MINUTES.toNanos(1);

  private long limitMs = PfsKeys.LAYOUT_TIMEOUT_DEFAULT_MS;
  private Path root;
  private Set<String> named = Set.of();

  /** The servers of OSTs, which change when one takes over for another. */
  private record Told(Map<Integer, String> servers, String printed, long untilNs) {}

  private Told told;

  @Override
  public void initialize(Configuration conf, Path mount) {
    limitMs = ToolOutput.limitMs(conf);
    root = mount;
    named = HostNames.parse(conf.get(PfsKeys.HOSTS, "")).keySet();
  }

  @Override
  public Map<Path, FileLayout> locate(List<Path> files) throws IOException {
    return locateKnown(Layouts.Key.of(files));
  }

  @Override
  public Map<Path, FileLayout> locateKnown(List<Layouts.Key> files) throws IOException {
    List<String> command = new ArrayList<>(List.of("lfs", "getstripe"));
    Map<String, Layouts.Key> byName = new HashMap<>();
    for (Layouts.Key file : files) {
      String name = file.file().toString();
      // A newline in a name would look like lines of the answer.
      if (name.indexOf('\n') < 0) {
        command.add(name);
        byName.put(name, file);
      }
    }
    if (byName.isEmpty()) {
      return Map.of();
    }
    String output = ToolOutput.of(command, limitMs);
    Map<String, LustreStripes> stripes = LustreStripes.parse(output, byName.keySet());
    if (stripes.isEmpty()) {
      throw new IOException("lfs getstripe told of no file: " + ToolOutput.shortened(output));
    }
    Map<Integer, String> servers = servers();
    Map<Path, FileLayout> found = new HashMap<>();
    stripes.forEach(
        (name, of) -> {
          Layouts.Key file = byName.get(name);
          found.put(file.file(), layout(file.length(), of, servers, named));
        });
    return found;
  }

  static FileLayout layout(
      long length, LustreStripes stripes, Map<Integer, String> servers, Set<String> named) {
    return FileLayout.sampled(
        length,
        stripes.unit(),
        offset -> {
          Set<String> found = new LinkedHashSet<>();
          for (int ost : stripes.ostsAt(offset)) {
            String name = String.format("OST%04x", ost);
            String server = named.contains(name) ? name : servers.get(ost);
            if (server != null) {
              found.add(server);
            }
          }
          return List.copyOf(found);
        });
  }

  private synchronized Map<Integer, String> servers() throws IOException {
    if (told == null || System.nanoTime() - told.untilNs() > 0) {
      told = ask();
    }
    if (told.servers().isEmpty() && named.isEmpty()) {
      throw new IOException(
          "lctl told of no server of " + root + " (" + told.printed()
              + "): let it, or name servers in fs.pfs.hosts, as OST0000=HOST,OST0001=HOST");
    }
    return told.servers();
  }

  private Told ask() {
    Map<Integer, String> servers = Map.of();
    String printed;
    try {
      String device = ToolOutput.of(List.of("lfs", "getname", root.toString()), limitMs);
      printed = ToolOutput.of(List.of("lctl", "get_param", "osc.*.ost_conn_uuid"), limitMs);
      servers = LustreStripes.servers(device, printed);
    } catch (IOException e) {
      printed = e.getMessage();
    }
    long keptNs = servers.isEmpty() ? FAILURE_KEPT_NS : KEPT_NS;
    return new Told(servers, ToolOutput.shortened(printed), System.nanoTime() + keptNs);
  }
}
