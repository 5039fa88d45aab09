package io.hayloft.pfs.layout;

import io.hayloft.pfs.io.Recent;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Block locations of files, from a provider, cached. A provider that fails is warned of once, and
 * its files are then as near to one host as to any other.
 */
public final class Layouts {
  private static final Logger LOG = LoggerFactory.getLogger(Layouts.class);
  private static final int CACHED_MAX = 10_000;

  /** Locations in one answer: a sparse file may claim exabytes, and has larger blocks then. */
  private static final int BLOCKS_MAX = 1 << 20;

  /** Hosts of a block that schedulers are told of. */
  private static final int HOSTS_MAX = 3;

  /** Chunks of a block that are looked at; beyond that a block is on every server anyway. */
  private static final int CHUNKS_PER_BLOCK_MAX = 256;

  /** What Hadoop calls a host when any will do. */
  private static final String ANY_HOST = "localhost";

  private final LayoutProvider provider;
  private final HostNames names;
  private final AtomicBoolean warned = new AtomicBoolean();

  /** A file in the state in which its layout was read. */
  public record Key(Path file, long inode, long modifiedMs, long length) {
    /** Of files as they are now; one that cannot be looked at is left out. */
    public static List<Key> of(List<Path> files) {
      List<Key> keys = new ArrayList<>();
      for (Path file : files) {
        try {
          Map<String, Object> got =
              Files.readAttributes(file, "unix:ino,size,lastModifiedTime");
          long modifiedMs = ((FileTime) got.get("lastModifiedTime")).toMillis();
          keys.add(new Key(file, (Long) got.get("ino"), modifiedMs, (Long) got.get("size")));
        } catch (IOException e) {
          LOG.debug("{} cannot be looked at", file, e);
        }
      }
      return keys;
    }
  }

  /** Servers move chunks while a file stays the same, and a tool may work again. */
  private static final long KEPT_NS = TimeUnit.MINUTES.toNanos(10);

  private static final long FAILURE_KEPT_NS = TimeUnit.MINUTES.toNanos(1);

  /** Of a file whose layout no tool tells. */
  private static final FileLayout ANYWHERE = FileLayout.whole(List.of());

  private final Recent<Key, FileLayout> cache = new Recent<>(CACHED_MAX);

  /** Uses this provider, which is initialized. */
  public Layouts(LayoutProvider provider, String hostPairs) {
    this.provider = provider;
    this.names = new HostNames(hostPairs);
  }

  /** The provider of a name or of a class. */
  public static LayoutProvider provider(String name, Configuration conf, Path root)
      throws IOException {
    LayoutProvider provider;
    switch (name) {
      case "posix":
        provider = new PosixLayout();
        break;
      case "moosefs":
        provider = new MooseFsLayout();
        break;
      case "gluster":
        provider = new GlusterLayout();
        break;
      case "cephfs":
        provider = new CephLayout();
        break;
      case "lustre":
        provider = new LustreLayout();
        break;
      case "orangefs":
        provider = new OrangeLayout();
        break;
      default:
        provider = ofClass(name, conf);
    }
    provider.initialize(conf, root);
    return provider;
  }

  private static LayoutProvider ofClass(String name, Configuration conf) {
    try {
      return conf.getClassByName(name)
          .asSubclass(LayoutProvider.class)
          .getDeclaredConstructor()
          .newInstance();
    } catch (ReflectiveOperationException | ClassCastException e) {
      throw new IllegalArgumentException(
          "fs.pfs.layout must be posix, moosefs, gluster, cephfs, lustre, orangefs or a class that"
              + " implements "
              + LayoutProvider.class.getName()
              + ", not "
              + name,
          e);
    }
  }

  /** Asks the provider for files that are not cached, so that {@link #locate} need not. */
  public void prefetch(List<Key> keys) {
    List<Key> missing = keys.stream().filter(key -> cache.get(key) == null).toList();
    int step = Math.max(1, provider.filesAtOnce());
    for (int from = 0; from < missing.size(); from += step) {
      ask(missing.subList(from, Math.min(missing.size(), from + step)));
    }
  }

  private void ask(List<Key> keys) {
    Map<Path, FileLayout> answers = new HashMap<>();
    try {
      answers = provider.locateKnown(keys);
    } catch (IOException | RuntimeException e) {
      if (warned.compareAndSet(false, true)) {
        LOG.warn(
            "{} cannot tell where files lie, so jobs run anywhere: {}. See fs.pfs.layout."
                + " This warning comes once.",
            provider.getClass().getSimpleName(),
            e.getMessage());
      }
      LOG.debug("layouts of {}", keys, e);
    }
    for (Key key : keys) {
      FileLayout layout = answers.get(key.file());
      if (layout == null) {
        // It is kept too, or a broken tool would run for each block.
        cache.put(key, ANYWHERE, FAILURE_KEPT_NS);
      } else {
        cache.put(key, layout, KEPT_NS);
      }
    }
  }

  /** The locations of the blocks of {@code blockSize} bytes that a range of the file touches. */
  public BlockLocation[] locate(Key key, long blockSize, long start, long length) {
    prefetch(List.of(key));
    FileLayout known = cache.get(key);
    FileLayout layout = known == null ? ANYWHERE : known;
    long end = length > key.length() - start ? key.length() : start + length;
    long step = blockSize;
    while ((end - start) / step >= BLOCKS_MAX) {
      step *= 2;
    }
    List<BlockLocation> blocks = new ArrayList<>();
    long at = start / step * step;
    while (at < end) {
      long size = Math.min(step, key.length() - at);
      blocks.add(block(hosts(layout, at, size), at, size));
      at += size;
    }
    return blocks.toArray(new BlockLocation[0]);
  }

  /** Adds hosts that have the whole file, such as those of its copies. */
  public static void addHosts(BlockLocation[] blocks, List<String> more) throws IOException {
    for (int at = 0; at < blocks.length && !more.isEmpty(); at++) {
      addHosts(blocks, at, more);
    }
  }

  /** Adds the hosts of the same blocks of a copy. */
  public static void addHosts(BlockLocation[] blocks, BlockLocation[] copy) throws IOException {
    for (int at = 0; at < blocks.length && at < copy.length; at++) {
      List<String> hosts = new ArrayList<>(List.of(copy[at].getHosts()));
      hosts.remove(ANY_HOST);
      addHosts(blocks, at, hosts);
    }
  }

  private static void addHosts(BlockLocation[] blocks, int at, List<String> more)
      throws IOException {
    Set<String> hosts = new LinkedHashSet<>(List.of(blocks[at].getHosts()));
    hosts.remove(ANY_HOST);
    hosts.addAll(more);
    blocks[at] = block(List.copyOf(hosts), blocks[at].getOffset(), blocks[at].getLength());
  }

  private static BlockLocation block(List<String> hosts, long offset, long length) {
    String[] all = hosts.isEmpty() ? new String[] {ANY_HOST} : hosts.toArray(new String[0]);
    String[] withPorts = new String[all.length];
    for (int at = 0; at < all.length; at++) {
      withPorts[at] = all[at] + ":0";
    }
    return new BlockLocation(withPorts, all, offset, length);
  }

  /** The hosts with most bytes of the block. */
  private List<String> hosts(FileLayout layout, long offset, long length) {
    if (layout.servers().isEmpty()) {
      return List.of();
    }
    Map<String, Long> bytes = new LinkedHashMap<>();
    long at = offset;
    for (int chunks = 0; at < offset + length && chunks < CHUNKS_PER_BLOCK_MAX; chunks++) {
      long number = at / layout.chunkSize();
      long left = layout.chunkSize() - at % layout.chunkSize();
      long part = Math.min(left, offset + length - at);
      for (String server : layout.servers().get((int) (number % layout.servers().size()))) {
        bytes.merge(names.of(server), part, Long::sum);
      }
      at += part;
    }
    return bytes.entrySet().stream()
        .sorted(Map.Entry.comparingByValue(Comparator.reverseOrder()))
        .limit(HOSTS_MAX)
        .map(Map.Entry::getKey)
        .toList();
  }
}
