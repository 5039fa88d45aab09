package io.hayloft.pfs.layout;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * On which OSTs the bytes of a file lie, as {@code lfs getstripe} prints it: of a plain file, or of
 * one with components for parts of it, which mirrors have for the same part.
 */
final class LustreStripes {
  private static final int OST_MAX = 0xffff;
  private static final int COMPONENTS_MAX = 1024;
  private static final int OBJECTS_MAX = 1 << 16;

  /** A file without stripes is looked at in steps of this, and has no servers in any. */
  private static final long UNIT_DEFAULT = 1 << 20;

  private static final Pattern FIELD = Pattern.compile("\\s*([a-z_]+(?:\\.[a-z_]+)?):\\s*(.*)");
  private static final Pattern PLAIN_OBJECT =
      Pattern.compile("\\s+(\\d{1,6})\\s+\\d{1,20}\\s+0x[0-9a-f]{1,16}\\s+\\S.*");
  private static final Pattern OBJECT =
      Pattern.compile("\\s*- (\\d{1,6}): \\{ l_ost_idx: (\\d{1,6}), l_fid: .*}\\s*");

  /** {@code osc.FSNAME-OST0001-osc-ffff8804.ost_conn_uuid=10.0.0.1@tcp}. */
  private static final Pattern CONNECTION =
      Pattern.compile(
          "osc\\.(\\S{1,64})-OST([0-9a-f]{4})-osc-([0-9a-f]{1,32})"
              + "\\.(?:ost_)?conn_uuid=(\\S{1,255})");
  private static final Pattern DEVICE = Pattern.compile("(\\S{1,64})-([0-9a-f]{1,32})(?:\\s.*)?");
  private static final Pattern ADDRESS =
      Pattern.compile("([0-9.]*\\.[0-9.]*|[0-9a-f:]*:[0-9a-f:]*)@.*");

  /** A part of the file with its own stripes; those of a plain file are one for all of it. */
  private static final class Component {
    private long start;
    private long end = Long.MAX_VALUE;
    private long stripe;
    private long count;
    private boolean used = true;
    private final List<Integer> osts = new ArrayList<>();

    boolean hasData() {
      return used && !osts.isEmpty();
    }

    boolean isComplete() {
      return stripe > 0 && start <= end && (osts.isEmpty() || osts.size() == count);
    }
  }

  private final List<Component> components = new ArrayList<>();

  private LustreStripes() {}

  /** What was printed of the files asked for; one that is not understood is left out. */
  static Map<String, LustreStripes> parse(String output, Collection<String> asked) {
    Map<String, LustreStripes> found = new HashMap<>();
    String name = null;
    LustreStripes stripes = null;
    for (String line : output.split("\n")) {
      if (asked.contains(line)) {
        keep(found, name, stripes);
        name = line;
        stripes = new LustreStripes();
      } else if (stripes != null && !isError(line) && !stripes.understood(line)) {
        stripes = null;
      }
    }
    keep(found, name, stripes);
    return found;
  }

  private static void keep(Map<String, LustreStripes> found, String name, LustreStripes stripes) {
    if (stripes != null && stripes.isComplete()) {
      found.put(name, stripes);
    }
  }

  /** Of a file that is not there, say: the lines before are another's. */
  private static boolean isError(String line) {
    return line.startsWith("error:") || line.startsWith("lfs ");
  }

  private boolean isComplete() {
    return !components.isEmpty() && components.stream().allMatch(Component::isComplete);
  }

  private boolean understood(String line) {
    Matcher plain = PLAIN_OBJECT.matcher(line);
    Matcher object = OBJECT.matcher(line);
    Matcher field = FIELD.matcher(line);
    if (plain.matches()) {
      return addObject(-1, plain.group(1));
    }
    if (object.matches()) {
      return addObject(Integer.parseInt(object.group(1)), object.group(2));
    }
    return field.matches()
        ? setField(field.group(1), field.group(2).strip())
        : line.isBlank() || line.strip().startsWith("obdidx");
  }

  private Component last() {
    return components.isEmpty() ? null : components.get(components.size() - 1);
  }

  private boolean addObject(int number, String index) {
    Component last = last();
    int ost = Integer.parseInt(index);
    if (last == null || ost > OST_MAX || last.osts.size() >= OBJECTS_MAX) {
      return false;
    }
    if (number >= 0 && number != last.osts.size()) {
      return false;
    }
    last.osts.add(ost);
    return true;
  }

  /** A field without a meaning here is passed over: newer versions have more. */
  private boolean setField(String name, String value) {
    boolean ofPlain = name.equals("lmm_stripe_count") && components.isEmpty();
    if (name.equals("lcme_id") || ofPlain) {
      components.add(new Component());
    }
    Component last = last();
    switch (name) {
      case "lcme_id":
        return components.size() <= COMPONENTS_MAX;
      case "lmm_stripe_count":
        // Of stripes on all servers it is -1 until there are objects.
        last.count = number(value);
        return true;
      case "lmm_stripe_size":
        return last != null && (last.stripe = number(value)) > 0;
      case "lcme_extent.e_start":
        return last != null && (last.start = number(value)) >= 0;
      case "lcme_extent.e_end":
        return last != null
            && (last.end = value.equals("EOF") ? Long.MAX_VALUE : number(value)) >= 0;
      case "lcme_flags":
        if (last != null) {
          // Of one without objects yet, of a mirror that is out of date, or of parity.
          List<String> flags = List.of(value.split(","));
          last.used =
              flags.contains("init") && !flags.contains("stale") && !flags.contains("parity");
        }
        return last != null;
      default:
        return true;
    }
  }

  /** Negative if it is no number, or larger than files are. */
  private static long number(String text) {
    return text.matches("\\d{1,18}") ? Long.parseLong(text) : -1;
  }

  /** The smallest stripe. */
  long unit() {
    return components.stream()
        .filter(Component::hasData)
        .mapToLong(each -> each.stripe)
        .min()
        .orElse(UNIT_DEFAULT);
  }

  /** The OSTs that have this byte, one of each mirror. Stripes count from the file's start. */
  List<Integer> ostsAt(long offset) {
    List<Integer> found = new ArrayList<>();
    for (Component each : components) {
      if (each.hasData() && each.start <= offset && offset < each.end) {
        found.add(each.osts.get((int) (offset / each.stripe % each.osts.size())));
      }
    }
    return found;
  }

  /**
   * The servers of OSTs by their numbers, addresses without the name of the network.
   *
   * @param device what {@code lfs getname} printed: the file system's name and the mount's number
   * @param connections of all mounts of this host, as {@code lctl get_param} prints them
   */
  static Map<Integer, String> servers(String device, String connections) {
    Map<Integer, String> servers = new HashMap<>();
    Matcher mount = DEVICE.matcher(device.strip());
    if (!mount.matches()) {
      return servers;
    }
    for (String line : connections.split("\n")) {
      Matcher connection = CONNECTION.matcher(line.strip());
      if (connection.matches()
          && connection.group(1).equals(mount.group(1))
          && connection.group(3).equals(mount.group(2))) {
        String nid = connection.group(4);
        Matcher address = ADDRESS.matcher(nid);
        servers.put(
            Integer.parseInt(connection.group(2), 16), address.matches() ? address.group(1) : nid);
      }
    }
    return servers;
  }
}
