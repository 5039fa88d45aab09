package io.hayloft.pfs.layout;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;

/**
 * Knows which servers hold which part of a file. Name a class of your own in {@code fs.pfs.layout};
 * it needs a public constructor without arguments.
 *
 * <p>A provider is called by several threads at once, and only for files whose layout is not
 * cached. It must end within a bounded time and read a bounded answer, whatever its tool does.
 */
public interface LayoutProvider {
  /** Called once, before anything else, with the mounted directory. */
  default void initialize(Configuration conf, Path root) throws IOException {}

  /**
   * The layouts of some regular files, all below the root. A file that the provider cannot tell
   * is left out of the answer; it throws only when it can tell none, and then says why.
   */
  Map<Path, FileLayout> locate(List<Path> files) throws IOException;

  /**
   * The same for files whose inodes and lengths are known already. A provider that needs these
   * overrides it, so that it need not look at the files.
   */
  default Map<Path, FileLayout> locateKnown(List<Layouts.Key> files) throws IOException {
    return locate(files.stream().map(Layouts.Key::file).toList());
  }

  /** How many files one call should ask for. */
  default int filesAtOnce() {
    return 100;
  }
}
