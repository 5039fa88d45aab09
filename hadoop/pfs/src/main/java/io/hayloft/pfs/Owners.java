package io.hayloft.pfs;

import java.io.IOException;
import java.nio.file.AccessMode;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.UserPrincipalLookupService;
import java.nio.file.attribute.UserPrincipalNotFoundException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.permission.FsAction;

/** Owners, and what the system lets this process do. */
final class Owners {
  private Owners() {}

  /** Null leaves the owner or the group as it is. */
  static void set(Path file, String owner, String group) throws IOException {
    PosixFileAttributeView view =
        Files.getFileAttributeView(file, PosixFileAttributeView.class, LinkOption.NOFOLLOW_LINKS);
    UserPrincipalLookupService names = file.getFileSystem().getUserPrincipalLookupService();
    try {
      if (owner != null) {
        view.setOwner(names.lookupPrincipalByName(owner));
      }
      if (group != null) {
        view.setGroup(names.lookupPrincipalByGroupName(group));
      }
    } catch (UserPrincipalNotFoundException e) {
      throw new IOException("this host knows no user or group named " + e.getName(), e);
    }
  }

  static void checkAccess(Path file, FsAction action) throws IOException {
    List<AccessMode> modes = new ArrayList<>();
    if (action.implies(FsAction.READ)) {
      modes.add(AccessMode.READ);
    }
    if (action.implies(FsAction.WRITE)) {
      modes.add(AccessMode.WRITE);
    }
    if (action.implies(FsAction.EXECUTE)) {
      modes.add(AccessMode.EXECUTE);
    }
    file.getFileSystem().provider().checkAccess(file, modes.toArray(new AccessMode[0]));
  }
}
