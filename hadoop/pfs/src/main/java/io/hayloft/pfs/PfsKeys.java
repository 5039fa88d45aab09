package io.hayloft.pfs;

/** The configuration keys, each declared once with its default. */
public final class PfsKeys {
  /** Of URIs. */
  public static final String SCHEME = "pfs";

  /** Of the names of this file system's own extended attributes, below {@code user.}. */
  public static final String ATTRIBUTES = "hayloft.pfs.";

  /** The mounted directory of {@code pfs:///}; that of {@code pfs://NAME/} has .NAME behind it. */
  public static final String ROOT = "fs.pfs.root";

  /** Whether the root must be a mount point. */
  public static final String MUST_BE_MOUNT = "fs.pfs.root.must.be.mount";

  public static final boolean MUST_BE_MOUNT_DEFAULT = true;

  /** What a block of a file is to schedulers. */
  public static final String BLOCK_SIZE = "fs.pfs.block.size";

  public static final long BLOCK_SIZE_DEFAULT = 64L << 20;

  /** Bytes read ahead at once; each stream that reads ahead has two buffers of it. */
  public static final String READAHEAD = "fs.pfs.readahead";

  public static final int READAHEAD_DEFAULT = 4 << 20;

  /** Bytes gathered before a write. */
  public static final String WRITE_BUFFER = "fs.pfs.write.buffer";

  public static final int WRITE_BUFFER_DEFAULT = 4 << 20;

  /** Memory of all buffers of a process, of the file systems with the same sizes. */
  public static final String BUFFERS_MAX = "fs.pfs.buffers.max";

  public static final long BUFFERS_MAX_DEFAULT = 256L << 20;

  /** Bytes between two ranges of a vectored read that are read rather than skipped. */
  public static final String VECTOR_GAP = "fs.pfs.vectored.gap";

  public static final int VECTOR_GAP_DEFAULT = 64 << 10;

  /** How long a call to the mount may take; 0 is no limit. */
  public static final String TIMEOUT = "fs.pfs.timeout";

  public static final long TIMEOUT_DEFAULT_MS = 120_000;

  /** Threads that call the mount. */
  public static final String THREADS = "fs.pfs.threads";

  public static final int THREADS_DEFAULT = 32;

  /** Whether hflush forces data to the servers, as other mounts may need it to see them. */
  public static final String HFLUSH_FORCE = "fs.pfs.hflush.force";

  public static final boolean HFLUSH_FORCE_DEFAULT = true;

  /** The layout provider: posix, moosefs, gluster, cephfs, lustre, orangefs, or a class name. */
  public static final String LAYOUT = "fs.pfs.layout";

  public static final String LAYOUT_DEFAULT = "posix";

  /** Names of storage servers and what the scheduler calls them: {@code a=b,c=d}. */
  public static final String HOSTS = "fs.pfs.hosts";

  /** How long a layout tool may run. */
  public static final String LAYOUT_TIMEOUT = "fs.pfs.layout.timeout";

  public static final long LAYOUT_TIMEOUT_DEFAULT_MS = 10_000;

  /** Copies of each new file, where its directory does not say. */
  public static final String COPIES = "fs.pfs.copies";

  public static final int COPIES_DEFAULT = 1;

  /** Where copies go, where the directory does not say: random, round-robin or hybrid. */
  public static final String COPIES_LAYOUT = "fs.pfs.copies.layout";

  public static final String COPIES_LAYOUT_DEFAULT = "hybrid";

  /** Directories for copies, {@code HOST=/DIRECTORY}, each kept on a server or in a /RACK. */
  public static final String TARGETS = "fs.pfs.targets";

  /** This host, as {@code fs.pfs.targets} calls it; its own name if not set. */
  public static final String HOST = "fs.pfs.host";

  private PfsKeys() {}
}
