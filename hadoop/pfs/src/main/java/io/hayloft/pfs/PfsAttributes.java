package io.hayloft.pfs;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.BasicFileAttributeView;
import java.nio.file.attribute.FileTime;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.permission.FsAction;
import org.apache.hadoop.fs.permission.FsPermission;

/** What a file has besides its bytes: owner, mode, times, extended attributes, links. */
abstract class PfsAttributes extends PfsOperations {
  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    statistics.incrementWriteOps(1);
    changeWithCopies("chmod", absolute(path), file -> Permissions.set(file, permission));
  }

  @Override
  public void setOwner(Path path, String owner, String group) throws IOException {
    statistics.incrementWriteOps(1);
    if (owner == null && group == null) {
      throw new IllegalArgumentException("setOwner needs an owner or a group: " + path);
    }
    changeWithCopies("chown", absolute(path), file -> Owners.set(file, owner, group));
  }

  @Override
  public void setTimes(Path path, long modifiedMs, long accessedMs) throws IOException {
    statistics.incrementWriteOps(1);
    setFileTimes(absolute(path), modifiedMs, accessedMs);
  }

  /** Copies are made when a file is written, so there is nothing to set. */
  @Override
  public boolean setReplication(Path path, short replication) throws IOException {
    return false;
  }

  @Override
  public void access(Path path, FsAction mode) throws IOException {
    statistics.incrementReadOps(1);
    call(
        "access",
        absolute(path),
        file -> {
          Owners.checkAccess(file, mode);
          return null;
        });
  }

  @Override
  public boolean supportsSymlinks() {
    return true;
  }

  @Override
  public void createSymlink(Path target, Path link, boolean createParent) throws IOException {
    statistics.incrementWriteOps(1);
    makeLink(target, absolute(link), createParent);
  }

  @Override
  public Path getLinkTarget(Path path) throws IOException {
    FileStatus status = getFileLinkStatus(path);
    if (!status.isSymlink()) {
      throw new IOException(path + " is no symbolic link");
    }
    return status.getSymlink();
  }

  @Override
  protected Path resolveLink(Path path) throws IOException {
    return getLinkTarget(path);
  }

  @Override
  public void setXAttr(Path path, String name, byte[] value, EnumSet<XAttrSetFlag> flags)
      throws IOException {
    changeFile("setxattr", absolute(path), file -> XAttrs.set(file, name, value, flags));
  }

  @Override
  public byte[] getXAttr(Path path, String name) throws IOException {
    return call("getxattr", absolute(path), file -> XAttrs.get(file, name));
  }

  @Override
  public Map<String, byte[]> getXAttrs(Path path) throws IOException {
    return getXAttrs(path, listXAttrs(path));
  }

  @Override
  public Map<String, byte[]> getXAttrs(Path path, List<String> names)
      throws IOException {
    Map<String, byte[]> values = new LinkedHashMap<>();
    for (String name : names) {
      values.put(name, getXAttr(path, name));
    }
    return values;
  }

  @Override
  public List<String> listXAttrs(Path path) throws IOException {
    return call("listxattr", absolute(path), XAttrs::list);
  }

  @Override
  public void removeXAttr(Path path, String name) throws IOException {
    changeFile("removexattr", absolute(path), file -> XAttrs.remove(file, name));
  }

  private void setFileTimes(Path path, long modifiedMs, long accessedMs) throws IOException {
    changeWithCopies(
        "set the times of",
        path,
        file ->
            Files.getFileAttributeView(file, BasicFileAttributeView.class)
                .setTimes(time(modifiedMs), time(accessedMs), null));
  }

  /** Hadoop's -1 leaves a time as it is. */
  private static FileTime time(long ms) {
    return ms == -1 ? null : FileTime.fromMillis(ms);
  }

  private void makeLink(Path target, Path link, boolean withParents) throws IOException {
    Path meant = target.isAbsolute() ? absolute(target) : target;
    changeFile(
        "link",
        link,
        file -> {
          if (withParents) {
            Directories.createAll(
                root(), file.getParent(), masked(FsPermission.getDirDefault()));
          }
          if (file.equals(root())) {
            throw new FileAlreadyExistsException("the root is a directory");
          }
          links().create(meant, file);
        });
  }
}
