package io.hayloft.pfs;

import java.util.Set;
import org.apache.hadoop.fs.CommonPathCapabilities;

/** What every path of this file system can do. */
final class Capabilities {
  private static final Set<String> ALL =
      Set.of(
          CommonPathCapabilities.FS_APPEND,
          CommonPathCapabilities.FS_PATHHANDLES,
          CommonPathCapabilities.FS_PERMISSIONS,
          CommonPathCapabilities.FS_TRUNCATE,
          CommonPathCapabilities.FS_SYMLINKS,
          CommonPathCapabilities.FS_XATTRS,
          CommonPathCapabilities.FS_MULTIPART_UPLOADER);

  private Capabilities() {}

  static boolean has(String capability) {
    return ALL.contains(capability);
  }
}
