package io.hayloft.pfs;

import io.hayloft.pfs.copies.Copies;
import io.hayloft.pfs.copies.Fsck;
import io.hayloft.pfs.copies.Heal;
import java.io.IOException;
import java.io.PrintStream;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;

/** The command line: where files lie, what is wrong with their copies, and mending that. */
public final class Tool {
  private static final String USAGE =
      "usage: Tool layout|fsck|heal PATH [--json] [--read] [--now] [-D KEY=VALUE]...\n"
          + "  layout  the servers of each block of the files below PATH\n"
          + "  fsck    files whose copies are missing, damaged or not sealed; below the root as a\n"
          + "          whole also copies that no file has, unless something could not be read\n"
          + "  heal    makes those copies anew, from one that is complete\n"
          + "  --json  one object a line\n"
          + "  --read  fsck and heal compare the bytes of copies, not only lengths\n"
          + "  --now   heal also takes unsealed files that changed within ten minutes\n"
          + "Reads core-site.xml from the class path. Ends with 0 if all is well, 1 if something"
          + " was found or is left, 2 if it could not look everywhere.";

  private static final long YOUNGEST_MS = TimeUnit.MINUTES.toMillis(10);

  private final Configuration conf;
  private final PrintStream out;
  private final PrintStream err;
  private final Set<String> options = new LinkedHashSet<>();
  private final List<String> words = new ArrayList<>();

  /** Reports to {@code out}, talks to {@code err}. */
  public Tool(Configuration conf, PrintStream out, PrintStream err) {
    this.conf = new Configuration(conf);
    this.out = out;
    this.err = err;
  }

  public static void main(String[] args) {
    System.exit(new Tool(new Configuration(), System.out, System.err).run(args));
  }

  /** Gives the exit code. */
  public int run(String... args) {
    try {
      parse(args);
      if (options.contains("--help")) {
        out.println(USAGE);
        return 0;
      }
      if (words.size() != 2) {
        throw new IllegalArgumentException("a command and a path are needed");
      }
      switch (words.get(0)) {
        case "layout":
          return layout(new Path(words.get(1)));
        case "fsck":
          return fsck(false);
        case "heal":
          return fsck(true);
        default:
          throw new IllegalArgumentException("no such command: " + words.get(0));
      }
    } catch (IllegalArgumentException e) {
      err.println("pfs: error: " + e.getMessage() + "\n" + USAGE);
    } catch (IOException e) {
      err.println("pfs: error: " + e.getMessage());
    }
    return 2;
  }

  private void parse(String[] args) {
    List<String> known = Arrays.asList("--json", "--read", "--now", "--help");
    for (int at = 0; at < args.length; at++) {
      if (args[at].equals("-D") && at + 1 < args.length && args[at + 1].indexOf('=') > 0) {
        at++;
        int equals = args[at].indexOf('=');
        conf.set(args[at].substring(0, equals), args[at].substring(equals + 1));
      } else if (known.contains(args[at])) {
        options.add(args[at]);
      } else if (args[at].startsWith("-")) {
        throw new IllegalArgumentException("no such option: " + args[at]);
      } else {
        words.add(args[at]);
      }
    }
  }

  private int layout(Path path) throws IOException {
    try (FileSystem fs = FileSystem.newInstance(fileSystem(path), conf)) {
      RemoteIterator<LocatedFileStatus> files = fs.listFiles(fs.makeQualified(path), true);
      while (files.hasNext()) {
        printBlocks(files.next());
      }
    }
    return 0;
  }

  private static URI fileSystem(Path path) {
    return path.toUri().getScheme() == null ? URI.create(PfsKeys.SCHEME + ":///") : path.toUri();
  }

  private void printBlocks(LocatedFileStatus file) throws IOException {
    String name = file.getPath().toUri().getPath();
    for (BlockLocation block : file.getBlockLocations()) {
      if (options.contains("--json")) {
        Map<String, Object> object = new LinkedHashMap<>();
        object.put("file", name);
        object.put("offset", block.getOffset());
        object.put("length", block.getLength());
        object.put("hosts", Arrays.asList(block.getHosts()));
        out.println(Json.of(object));
      } else {
        out.println(
            name
                + "  "
                + block.getOffset()
                + "+"
                + block.getLength()
                + "  "
                + String.join(",", block.getHosts()));
      }
    }
  }

  private int fsck(boolean heals) throws IOException {
    Path asked = new Path(words.get(1));
    URI uri = fileSystem(asked);
    java.nio.file.Path root = PfsConfig.root(uri, conf);
    if (conf.getBoolean(PfsKeys.MUST_BE_MOUNT, PfsKeys.MUST_BE_MOUNT_DEFAULT)) {
      MountCheck.check(root);
    }
    Copies copies = PfsConfig.copies(conf, root);
    if (!copies.enabled()) {
      throw new IllegalArgumentException(
          "there are no copies without " + PfsKeys.TARGETS + " in core-site.xml");
    }
    LocalPaths paths = new LocalPaths(root, PfsKeys.SCHEME, uri.getAuthority());
    java.nio.file.Path top = paths.local(asked);
    Findings findings = new Findings(paths, heals);
    Fsck fsck = new Fsck(copies, options.contains("--read"), findings::take);
    fsck.check(top);
    if (top.equals(root) && fsck.sawAll()) {
      fsck.checkOrphans();
    }
    long left = heals ? findings.unhealable + heal(copies, paths, findings.files) : findings.all;
    err.println(fsck.files() + " files, " + findings.all + " findings, " + left + " left");
    if (!fsck.sawAll()) {
      return 2;
    }
    return left == 0 ? 0 : 1;
  }

  /** Prints what is wrong as it is found: of a large file system only what heal needs is kept. */
  private final class Findings {
    private final LocalPaths paths;
    private final boolean heals;
    private final Set<java.nio.file.Path> files = new LinkedHashSet<>();
    private long unhealable;
    private long all;

    Findings(LocalPaths paths, boolean heals) {
      this.paths = paths;
      this.heals = heals;
    }

    void take(Fsck.Finding finding) {
      all++;
      print(paths, finding);
      switch (finding.problem()) {
          // An orphan may be the last copy of a file that was restored without its attributes.
        case ORPHAN, UNREADABLE -> unhealable++;
        default -> {
          if (heals) {
            files.add(finding.file());
          }
        }
      }
    }
  }

  private void print(LocalPaths paths, Fsck.Finding finding) {
    String name = paths.hadoop(finding.file()).toUri().getPath();
    String problem = finding.problem().name().toLowerCase(Locale.ROOT).replace('_', '-');
    if (!options.contains("--json")) {
      out.println(name + "  " + problem + "  " + finding.where());
      return;
    }
    Map<String, Object> object = new LinkedHashMap<>();
    object.put("file", name);
    object.put("problem", problem);
    object.put("where", finding.where());
    out.println(Json.of(object));
  }

  /** Gives the number of files that still have something wrong. */
  private long heal(Copies copies, LocalPaths paths, Set<java.nio.file.Path> files) {
    Heal heal =
        new Heal(copies, options.contains("--now") ? 0 : YOUNGEST_MS, options.contains("--read"));
    long left = 0;
    for (java.nio.file.Path file : files) {
      try {
        if (heal.heal(file) == Heal.Outcome.TOO_YOUNG) {
          err.println(paths.hadoop(file) + ": changed just now; heal it later or with --now");
          left++;
        }
      } catch (IOException e) {
        err.println("pfs: error: " + e.getMessage());
        left++;
      }
    }
    return left;
  }
}
