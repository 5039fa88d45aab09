package io.hayloft.pfs.layout;

import io.hayloft.pfs.PfsKeys;
import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;

/**
 * CephFS: a file is cut into objects, whose names follow from its inode and whose placement from
 * their names. {@code getfattr} prints how a file is cut. {@code ceph} tells of a whole cluster
 * at once which host serves what, so it does not run for each file.
 */
public final class CephLayout implements LayoutProvider {
  private static final String ATTRIBUTE = "ceph.file.layout";
  private static final long KEPT_NS = TimeUnit.MINUTES.toNanos(1);

  /** Inodes above it are those of snapshots, as the FUSE client numbers them. */
  private static final long INODE_MAX = (1L << 48) - 1;

  private long limitMs = PfsKeys.LAYOUT_TIMEOUT_DEFAULT_MS;

  /** What was told last; of failures, too, or each file would wait for monitors that are down. */
  private record Told(CephMap map, IOException failure, long atNs) {}

  private Told told;

  /** How a file is cut: units of each stripe go to {@code count} objects in turn. */
  record Striping(long unit, int count, long objectSize, String pool, String namespace) {
    private static final Pattern VALUE =
        Pattern.compile(
            "stripe_unit=(\\d{1,12}) stripe_count=(\\d{1,6}) object_size=(\\d{1,12})"
                + " pool=([^\"\\\\]{1,255}?)(?: pool_namespace=([^\"\\\\]{1,255}))?\".*");

    /** Null if the text is not such a layout, or none that Ceph would take. */
    static Striping parse(String text) {
      Matcher value = VALUE.matcher(text);
      if (!value.matches()) {
        return null;
      }
      long unit = Long.parseLong(value.group(1));
      int count = Integer.parseInt(value.group(2));
      long objectSize = Long.parseLong(value.group(3));
      if (unit < 1 || count < 1 || objectSize < unit || objectSize % unit != 0) {
        return null;
      }
      String namespace = value.group(5) == null ? "" : value.group(5);
      return new Striping(unit, count, objectSize, value.group(4), namespace);
    }

    /** The number of the object that has the byte at this offset. */
    long objectAt(long offset) {
      long units = offset / unit;
      long stripe = units / count;
      return stripe / (objectSize / unit) * count + units % count;
    }
  }

  @Override
  public void initialize(Configuration conf, Path root) {
    limitMs = ToolOutput.limitMs(conf);
  }

  @Override
  public Map<Path, FileLayout> locate(List<Path> files) throws IOException {
    return locateKnown(Layouts.Key.of(files));
  }

  @Override
  public Map<Path, FileLayout> locateKnown(List<Layouts.Key> files) throws IOException {
    if (files.isEmpty()) {
      return Map.of();
    }
    List<Path> paths = files.stream().map(Layouts.Key::file).toList();
    String output = FileAttributes.print(ATTRIBUTE, paths, limitMs);
    Map<Path, String> values =
        FileAttributes.parse(output, FileAttributes.byPrinted(paths), ATTRIBUTE);
    if (values.isEmpty()) {
      throw new IOException(
          "getfattr told no " + ATTRIBUTE + " of " + paths.get(0) + ": "
              + ToolOutput.shortened(output));
    }
    CephMap map = map();
    Map<Path, FileLayout> found = new HashMap<>();
    for (Layouts.Key file : files) {
      String value = values.get(file.file());
      Striping striping = value == null ? null : Striping.parse(value);
      if (striping != null && map.knows(striping.pool()) && file.inode() <= INODE_MAX) {
        found.put(file.file(), layout(file, striping, map));
      }
    }
    return found;
  }

  static FileLayout layout(Layouts.Key file, Striping striping, CephMap map) {
    return FileLayout.sampled(
        file.length(),
        // Without turns between objects, one is as good as its units.
        striping.count() == 1 ? striping.objectSize() : striping.unit(),
        offset -> {
          String object = String.format("%x.%08x", file.inode(), striping.objectAt(offset));
          return map.servers(striping.pool(), striping.namespace(), object);
        });
  }

  private synchronized CephMap map() throws IOException {
    long now = System.nanoTime();
    if (told == null || now - told.atNs() > KEPT_NS) {
      try {
        List<String> command = List.of("ceph", "--format", "json");
        String answers = ToolOutput.of(command, CephMap.QUESTIONS, limitMs);
        told = new Told(CephMap.parse(answers), null, System.nanoTime());
      } catch (IOException e) {
        told = new Told(null, e, System.nanoTime());
      }
    }
    if (told.failure() != null) {
      throw new IOException(told.failure().getMessage(), told.failure());
    }
    return told.map();
  }
}
