package io.hayloft.pfs;

import io.hayloft.pfs.read.ReadPolicy;
import io.hayloft.pfs.write.PfsOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.MultipartUploaderBuilder;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.PathHandle;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.impl.AbstractFSBuilderImpl;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.impl.PathCapabilitiesSupport;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.LambdaUtils;
import org.apache.hadoop.util.Progressable;

/**
 * A file system over a mounted one: {@code pfs:///a} is the file {@code a} below {@code
 * fs.pfs.root}. Files are plain, so every other user of the mount sees them.
 */
public class PfsFileSystem extends PfsAttributes {
  /** What every path can do. */
  private static final Set<String> CAPABILITIES =
      Set.of(
          CommonPathCapabilities.FS_APPEND,
          CommonPathCapabilities.FS_PATHHANDLES,
          CommonPathCapabilities.FS_PERMISSIONS,
          CommonPathCapabilities.FS_TRUNCATE,
          CommonPathCapabilities.FS_SYMLINKS,
          CommonPathCapabilities.FS_XATTRS,
          CommonPathCapabilities.FS_MULTIPART_UPLOADER);

  private Path workingDirectory;

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    workingDirectory = getHomeDirectory();
  }

  @Override
  public Path getWorkingDirectory() {
    return workingDirectory;
  }

  @Override
  public void setWorkingDirectory(Path directory) {
    workingDirectory = fixRelativePart(directory);
    checkPath(workingDirectory);
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    return openAs(absolute(path), null, ReadPolicy.ADAPTIVE);
  }

  @Override
  public FSDataInputStream open(PathHandle handle, int bufferSize) throws IOException {
    PfsPathHandle parsed = PfsPathHandle.parse(handle);
    Path path = new Path(getUri().getScheme(), getUri().getAuthority(), parsed.path());
    return openAs(path, parsed, ReadPolicy.ADAPTIVE);
  }

  private FSDataInputStream openAs(Path path, PfsPathHandle handle, ReadPolicy policy)
      throws IOException {
    statistics.incrementReadOps(1);
    return new FSDataInputStream(openStream(path, handle, policy));
  }

  @Override
  protected CompletableFuture<FSDataInputStream> openFileWithOptions(
      Path path, OpenFileParameters parameters) throws IOException {
    AbstractFSBuilderImpl.rejectUnknownMandatoryKeys(
        parameters.getMandatoryKeys(),
        Options.OpenFileOptions.FS_OPTION_OPENFILE_STANDARD_OPTIONS,
        "for " + path);
    ReadPolicy policy = policy(parameters);
    return LambdaUtils.eval(
        new CompletableFuture<>(), () -> openAs(absolute(path), null, policy));
  }

  private static ReadPolicy policy(OpenFileParameters parameters) {
    return ReadPolicy.of(
        parameters.getOptions().get(Options.OpenFileOptions.FS_OPTION_OPENFILE_READ_POLICY, ""));
  }

  @Override
  protected PathHandle createPathHandle(FileStatus status, Options.HandleOpt... options) {
    Options.HandleOpt.Data data =
        Options.HandleOpt.getOpt(Options.HandleOpt.Data.class, options)
            .orElse(Options.HandleOpt.changed(false));
    Options.HandleOpt.Location location =
        Options.HandleOpt.getOpt(Options.HandleOpt.Location.class, options)
            .orElse(Options.HandleOpt.moved(false));
    if (location.allowChange()) {
      throw new UnsupportedOperationException(
          "pfs cannot find a file that has moved: ask for a handle with moved(false)");
    }
    try {
      return new PfsPathHandle(
          status.getPath().toUri().getPath(),
          inode(status),
          data.allowChange(),
          status.getLen(),
          status.getModificationTime());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @Override
  public FSDataOutputStream create(
      Path path,
      FsPermission permission,
      boolean overwrite,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    return createAs(path, masked(permission), overwrite, true);
  }

  @Override
  public FSDataOutputStream createNonRecursive(
      Path path,
      FsPermission permission,
      EnumSet<CreateFlag> flags,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    return createByFlags(path, masked(permission), flags, false);
  }

  @Override
  public FSDataOutputStream create(
      Path path,
      FsPermission permission,
      EnumSet<CreateFlag> flags,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress,
      Options.ChecksumOpt checksum)
      throws IOException {
    return createByFlags(path, masked(permission), flags, true);
  }

  /** FileContext's way: the permission is already masked. */
  @Override
  protected FSDataOutputStream primitiveCreate(
      Path path,
      FsPermission permission,
      EnumSet<CreateFlag> flags,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress,
      Options.ChecksumOpt checksum)
      throws IOException {
    return createByFlags(path, permission, flags, true);
  }

  private FSDataOutputStream createByFlags(
      Path path, FsPermission permission, EnumSet<CreateFlag> flags, boolean withParents)
      throws IOException {
    CreateFlag.validate(flags);
    boolean mayCreate = flags.contains(CreateFlag.CREATE);
    boolean append = flags.contains(CreateFlag.APPEND);
    if (append || !mayCreate) {
      boolean exists = exists(path);
      CreateFlag.validate(path, exists, flags);
      if (append && exists) {
        return append(path, 0, null);
      }
    }
    return createAs(path, permission, flags.contains(CreateFlag.OVERWRITE), withParents);
  }

  private FSDataOutputStream createAs(
      Path path, FsPermission permission, boolean overwrite, boolean withParents)
      throws IOException {
    statistics.incrementWriteOps(1);
    return new FSDataOutputStream(
        createStream(absolute(path), new Creation.Wanted(permission, overwrite, withParents)),
        statistics);
  }

  @Override
  public FSDataOutputStream append(Path path, int bufferSize, Progressable progress)
      throws IOException {
    statistics.incrementWriteOps(1);
    PfsOutputStream out = appendStream(absolute(path));
    return new FSDataOutputStream(out, statistics, out.start());
  }

  @Override
  public boolean truncate(Path path, long length) throws IOException {
    statistics.incrementWriteOps(1);
    truncateFile(absolute(path), length);
    return true;
  }

  @Override
  public boolean rename(Path from, Path to) throws IOException {
    statistics.incrementWriteOps(1);
    Path source = absolute(from);
    return call("rename", source, file -> renames().rename(file, local(absolute(to))));
  }

  @Override
  public void rename(Path from, Path to, Options.Rename... options) throws IOException {
    statistics.incrementWriteOps(1);
    boolean overwrite = List.of(options).contains(Options.Rename.OVERWRITE);
    Path source = absolute(from);
    call(
        "rename",
        source,
        file -> {
          renames().renameOrThrow(file, local(absolute(to)), overwrite);
          return null;
        });
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    statistics.incrementWriteOps(1);
    return deletePath(absolute(path), recursive);
  }

  @Override
  public boolean mkdirs(Path path, FsPermission permission) throws IOException {
    return makeDirectories(absolute(path), masked(permission));
  }

  @Override
  protected boolean primitiveMkdir(Path path, FsPermission permission) throws IOException {
    return makeDirectories(absolute(path), permission);
  }

  @Override
  protected void primitiveMkdir(Path path, FsPermission permission, boolean withParents)
      throws IOException {
    Path absolute = absolute(path);
    if (!withParents) {
      FileStatus parent = absolute.isRoot() ? null : getFileStatus(absolute.getParent());
      if (parent != null && !parent.isDirectory()) {
        throw new org.apache.hadoop.fs.ParentNotDirectoryException(
            absolute.getParent() + " is no directory");
      }
    }
    makeDirectories(absolute, permission);
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    statistics.incrementReadOps(1);
    return status(absolute(path), true);
  }

  @Override
  public FileStatus getFileLinkStatus(Path path) throws IOException {
    statistics.incrementReadOps(1);
    return status(absolute(path), false);
  }

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    List<FileStatus> found = new ArrayList<>();
    RemoteIterator<FileStatus> entries = listStatusIterator(path);
    while (entries.hasNext()) {
      found.add(entries.next());
    }
    found.sort(Comparator.comparing(FileStatus::getPath));
    return found.toArray(new FileStatus[0]);
  }

  @Override
  public RemoteIterator<FileStatus> listStatusIterator(Path path) throws IOException {
    statistics.incrementReadOps(1);
    return list(absolute(path));
  }

  @Override
  protected RemoteIterator<LocatedFileStatus> listLocatedStatus(Path path, PathFilter filter)
      throws IOException {
    return new LocatedListing(this, listStatusIterator(path), filter);
  }

  @Override
  public BlockLocation[] getFileBlockLocations(FileStatus file, long start, long length)
      throws IOException {
    if (file == null) {
      return null;
    }
    if (start < 0 || length < 0) {
      throw new IllegalArgumentException("start " + start + ", length " + length);
    }
    if (file.getLen() <= start || file.isDirectory()) {
      return new BlockLocation[0];
    }
    return locate(file, start, length);
  }

  @Override
  public FsStatus getStatus(Path path) throws IOException {
    statistics.incrementReadOps(1);
    Path asked = path == null ? new Path("/") : path;
    return call(
        "statfs",
        absolute(asked),
        file -> {
          java.nio.file.FileStore store = Files.getFileStore(file);
          long total = store.getTotalSpace();
          return new FsStatus(
              total, Math.max(0, total - store.getUnallocatedSpace()), store.getUsableSpace());
        });
  }

  @Override
  public MultipartUploaderBuilder createMultipartUploader(Path base) throws IOException {
    return PfsMultipartUploader.builder(this, makeQualified(base));
  }

  @Override
  public boolean hasPathCapability(Path path, String capability) throws IOException {
    String wanted =
        PathCapabilitiesSupport.validatePathCapabilityArgs(makeQualified(path), capability);
    return CAPABILITIES.contains(wanted) || super.hasPathCapability(path, capability);
  }
}
