package io.hayloft.pfs;

import io.hayloft.pfs.copies.Copies;
import io.hayloft.pfs.copies.CopiesSource;
import io.hayloft.pfs.io.BufferPool;
import io.hayloft.pfs.io.TimeLimit;
import io.hayloft.pfs.layout.Layouts;
import io.hayloft.pfs.read.PfsInputStream;
import io.hayloft.pfs.read.ReadPolicy;
import io.hayloft.pfs.read.Reads;
import io.hayloft.pfs.read.Source;
import io.hayloft.pfs.write.Finish;
import io.hayloft.pfs.write.PfsOutputStream;
import io.hayloft.pfs.write.Sink;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.channels.FileChannel;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.InvalidPathHandleException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.permission.FsPermission;

/** What the file system does to files, in terms of the mount; each call has a limit of time. */
abstract class PfsOperations extends FileSystem {
  private static final int SMALL_BUFFER = 128 << 10;
  private static final int SMALL_BUFFERS_PER_THREAD = 2;

  private URI uri;
  private PfsConfig config;
  private LocalPaths paths;
  private Links links;
  private TimeLimit limit;
  private Reads reads;
  private BufferPool writeBuffers;
  private MountWatch watch;
  private Renames renames;
  private Deletes deletes;
  private Creation creation;
  private Layouts layouts;
  private Copies copies;

  /** Does something to a file. */
  interface FileCall<T> {
    T run(java.nio.file.Path file) throws IOException;
  }

  /** Does something to a file that may take longer than the limit, as long as it ticks. */
  interface LongFileCall<T> {
    T run(java.nio.file.Path file, TimeLimit.Ticks ticks) throws IOException;
  }

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setConf(conf);
    String authority = name.getAuthority();
    uri = URI.create(PfsKeys.SCHEME + "://" + (authority == null ? "/" : authority));
    config = PfsConfig.of(uri, conf);
    limit = new TimeLimit(config.root().toString(), config.threads(), config.timeoutMs());
    watch =
        config.mustBeMount()
            ? limit.run("look at the mount", () -> new MountWatch(config.root()))
            : null;
    paths = new LocalPaths(config.root(), PfsKeys.SCHEME, authority);
    links = new Links(paths);
    makePools();
    copies = PfsConfig.copies(conf, config.root());
    // Copies of a file that goes, go with it.
    renames = new Renames(config.root(), copies::goingWith);
    deletes = new Deletes(config.root(), copies::goingWith);
    creation = new Creation(config.root(), copies::goingWith);
    layouts =
        new Layouts(
            Layouts.provider(
                conf.getTrimmed(PfsKeys.LAYOUT, PfsKeys.LAYOUT_DEFAULT), conf, config.root()),
            conf.get(PfsKeys.HOSTS, ""));
  }

  private void makePools() {
    int smallCount = config.threads() * SMALL_BUFFERS_PER_THREAD;
    BufferPool small = BufferPool.shared(SMALL_BUFFER, smallCount);
    boolean shared = config.readahead() == config.writeBuffer();
    long each = shared ? config.buffersMax() : config.buffersMax() / 2;
    BufferPool large = BufferPool.shared(config.readahead(), count(each, config.readahead()));
    reads = new Reads(limit, large, small);
    writeBuffers =
        shared ? large : BufferPool.shared(config.writeBuffer(), count(each, config.writeBuffer()));
  }

  private static int count(long bytes, int size) {
    return (int) Math.min(Integer.MAX_VALUE, bytes / size);
  }

  @Override
  public String getScheme() {
    return PfsKeys.SCHEME;
  }

  @Override
  public URI getUri() {
    return uri;
  }

  /** There is no server to have tokens of; a name would be looked up as a host otherwise. */
  @Override
  public String getCanonicalServiceName() {
    return null;
  }

  @Override
  public long getDefaultBlockSize() {
    return config.blockSize();
  }

  @Override
  public void close() throws IOException {
    super.close();
    if (limit != null) {
      limit.close();
    }
  }

  /** The path with scheme and without dots; throws for one of another file system. */
  final Path absolute(Path path) {
    return makeQualified(path);
  }

  final java.nio.file.Path local(Path path) throws IOException {
    return paths.local(path);
  }

  final Links links() {
    return links;
  }

  final java.nio.file.Path root() {
    return config.root();
  }

  final Renames renames() {
    return renames;
  }

  final FsPermission masked(FsPermission permission) {
    FsPermission wanted = permission == null ? FsPermission.getFileDefault() : permission;
    return wanted.applyUMask(FsPermission.getUMask(getConf()));
  }

  /** Calls the mount, with the limit of time and Hadoop's exceptions. */
  final <T> T call(String verb, Path path, FileCall<T> call) throws IOException {
    return callLong(verb, path, (file, ticks) -> call.run(file));
  }

  private <T> T callLong(String verb, Path path, LongFileCall<T> call) throws IOException {
    java.nio.file.Path file = paths.local(path);
    try {
      return limit.runLong(
          verb + " " + path,
          ticks -> {
            checkMount();
            return call.run(file, ticks);
          });
    } catch (IOException e) {
      throw Errors.of(path, e);
    }
  }

  private void checkMount() throws IOException {
    if (watch != null) {
      watch.check();
    }
  }

  final void changeFile(String verb, Path path, Copies.Change change) throws IOException {
    call(
        verb,
        path,
        file -> {
          change.on(file);
          return null;
        });
  }

  final PfsInputStream openStream(Path path, PfsPathHandle handle, ReadPolicy policy)
      throws IOException {
    Source source = call("open", path, file -> openSource(path, file, handle));
    if (copies.enabled()) {
      openCopy(path, source);
    }
    return new PfsInputStream(
        source, path.toString(), reads, policy, config.vectorGap(), statistics);
  }

  private void openCopy(Path path, Source source) throws IOException {
    try {
      reads.open(source, path.toString());
    } catch (IOException e) {
      limit.closeSoon("close " + path, source);
      throw Errors.of(path, e);
    }
  }

  private Source openSource(Path path, java.nio.file.Path file, PfsPathHandle handle)
      throws IOException {
    Attributes attributes;
    try {
      attributes = Attributes.of(file);
    } catch (IOException e) {
      if (handle != null && Errors.isAbsent(e)) {
        throw new InvalidPathHandleException("no file is at the handle's path " + path, e);
      }
      throw absentAs(path, e);
    }
    if (attributes.isDirectory()) {
      throw new FileNotFoundException(path + " is a directory and cannot be read");
    }
    if (handle != null) {
      handle.verify(path, attributes);
    }
    return CopiesSource.open(
        copies, file, failed -> limit.closeSoon("close a copy of " + path, failed));
  }

  /** A file below a file does not exist, as a file in a missing directory does not. */
  private static IOException absentAs(Path path, IOException e) {
    return Errors.isAbsent(e)
        ? (IOException) new FileNotFoundException(path + " does not exist").initCause(e)
        : e;
  }

  final PfsOutputStream createStream(Path path, Creation.Wanted wanted) throws IOException {
    return stream(
        path,
        call(
            "create",
            path,
            file -> copies.begin(creation.create(file, wanted))));
  }

  final PfsOutputStream appendStream(Path path) throws IOException {
    return stream(
        path,
        call(
            "append to",
            path,
            file -> copies.reopen(Creation.append(file))));
  }

  private PfsOutputStream stream(Path path, List<Sink> sinks) {
    Finish finish = copies.enabled() ? copies::seal : Finish.NOTHING;
    return new PfsOutputStream(
        path.toString(), sinks, limit, writeBuffers, config.hflushForce(), finish);
  }

  final void truncateFile(Path path, long length) throws IOException {
    if (length < 0) {
      throw new IllegalArgumentException("a length of " + length + " for " + path);
    }
    changeFile(
        "truncate",
        path,
        file -> {
          Attributes now = Attributes.of(file);
          if (now.isDirectory()) {
            throw new FileNotFoundException(path + " is a directory");
          }
          if (length > now.size()) {
            throw new IllegalArgumentException(
                path + " has " + now.size() + " bytes and cannot be cut to " + length);
          }
          copies.change(file, each -> truncate(each, length));
        });
  }

  private static void truncate(java.nio.file.Path file, long length) throws IOException {
    try (FileChannel channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
      channel.truncate(length);
    }
  }

  /** Changes a file and its copies. */
  final void changeWithCopies(String verb, Path path, Copies.Change change) throws IOException {
    changeFile(verb, path, file -> copies.change(file, change));
  }

  final boolean deletePath(Path path, boolean recursive) throws IOException {
    return callLong("delete", path, (file, ticks) -> deletes.delete(file, recursive, ticks));
  }

  final boolean makeDirectories(Path path, FsPermission permission) throws IOException {
    statistics.incrementWriteOps(1);
    changeFile(
        "mkdir", path, file -> Directories.createAll(config.root(), file, permission));
    return true;
  }

  final PfsFileStatus status(Path path, boolean follow) throws IOException {
    return call(
        "stat",
        path,
        file -> {
          try {
            return statusOf(path, file, follow);
          } catch (IOException e) {
            throw absentAs(path, e);
          }
        });
  }

  private PfsFileStatus statusOf(Path path, java.nio.file.Path file, boolean follow)
      throws IOException {
    Attributes attributes = follow ? Attributes.of(file) : Attributes.ofLink(file);
    Path symlink = attributes.kind() == Attributes.Kind.LINK ? links.target(file) : null;
    return new PfsFileStatus(attributes, file, path, symlink, 1, config.blockSize());
  }

  final RemoteIterator<FileStatus> list(Path path) throws IOException {
    FileStatus status = status(path, true);
    if (!status.isDirectory()) {
      return org.apache.hadoop.util.functional.RemoteIterators.remoteIteratorFromSingleton(status);
    }
    java.nio.file.Path directory = paths.local(path);
    try {
      return Listing.of(limit, path.toString(), directory, entry -> entryStatus(path, entry));
    } catch (IOException e) {
      throw Errors.of(path, e);
    }
  }

  /** Null for an entry that has gone, or that has no name in Hadoop. */
  private FileStatus entryStatus(Path directory, java.nio.file.Path entry) throws IOException {
    Path path = paths.child(directory, entry);
    if (path == null) {
      return null;
    }
    try {
      return statusOf(path, entry, true);
    } catch (IOException e) {
      if (!Errors.isAbsent(e)) {
        throw Errors.of(path, e);
      }
    }
    try {
      // A link to nothing is listed as the link it is.
      return statusOf(path, entry, false);
    } catch (IOException e) {
      if (Errors.isAbsent(e)) {
        return null;
      }
      throw Errors.of(path, e);
    }
  }

  final BlockLocation[] locate(FileStatus file, long start, long length) throws IOException {
    Path path = absolute(file.getPath());
    Layouts.Key key = layoutKey(path, inode(file), file);
    BlockLocation[] blocks = layouts.locate(key, config.blockSize(), start, length);
    if (copies.enabled()) {
      addCopies(path, blocks, key.length(), start, length);
    }
    return blocks;
  }

  private void addCopies(Path path, BlockLocation[] blocks, long size, long start, long length)
      throws IOException {
    List<Layouts.Key> inRacks = new ArrayList<>();
    List<String> hosts =
        call(
            "read the copies of",
            path,
            file -> {
              Copies.Places places = copies.places(file);
              inRacks.addAll(Layouts.Key.of(places.inRacks()));
              return places.hosts();
            });
    Layouts.addHosts(blocks, hosts);
    layouts.prefetch(inRacks);
    for (Layouts.Key copy : inRacks) {
      if (copy.length() == size) {
        Layouts.addHosts(blocks, layouts.locate(copy, config.blockSize(), start, length));
      }
    }
  }

  /** A listing with block locations leaves it out, so that it is looked up. */
  final long inode(FileStatus file) throws IOException {
    return file instanceof PfsFileStatus known
        ? known.inode()
        : status(absolute(file.getPath()), true).inode();
  }

  private Layouts.Key layoutKey(Path path, long inode, FileStatus status) throws IOException {
    return new Layouts.Key(
        paths.local(path), inode, status.getModificationTime(), status.getLen());
  }

  /** Lets the provider look at many files at once, before their locations are asked for. */
  final void prefetchLayouts(List<FileStatus> files) throws IOException {
    List<Layouts.Key> keys = new ArrayList<>();
    for (FileStatus file : files) {
      if (file.isFile() && file.getLen() > 0 && file instanceof PfsFileStatus known) {
        keys.add(layoutKey(file.getPath(), known.inode(), file));
      }
    }
    layouts.prefetch(keys);
  }
}
