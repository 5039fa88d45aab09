package io.hayloft.pfs;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.MultipartUploaderBuilder;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.permission.FsAction;

/** The file system for {@code FileContext}: {@code fs.AbstractFileSystem.pfs.impl}. */
public class Pfs extends DelegateToFileSystem {
  private final PfsFileSystem fs;

  /** For Hadoop, which creates it by reflection. */
  public Pfs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    this(uri, new PfsFileSystem(), conf);
  }

  private Pfs(URI uri, PfsFileSystem fs, Configuration conf)
      throws IOException, URISyntaxException {
    super(uri, fs, conf, PfsKeys.SCHEME, false);
    this.fs = fs;
  }

  @Override
  public int getUriDefaultPort() {
    return -1;
  }

  /** The mount takes every name that Hadoop can say; paths out of the root are refused later. */
  @Override
  public boolean isValidName(String name) {
    return true;
  }

  @Override
  public void renameInternal(Path from, Path to) throws IOException {
    fs.rename(from, to, Options.Rename.NONE);
  }

  @Override
  public void renameInternal(Path from, Path to, boolean overwrite) throws IOException {
    fs.rename(from, to, overwrite ? Options.Rename.OVERWRITE : Options.Rename.NONE);
  }

  @Override
  public RemoteIterator<FileStatus> listStatusIterator(Path path) throws IOException {
    return fs.listStatusIterator(path);
  }

  @Override
  public RemoteIterator<LocatedFileStatus> listLocatedStatus(Path path) throws IOException {
    return fs.listLocatedStatus(path);
  }

  @Override
  public void access(Path path, FsAction mode) throws IOException {
    fs.access(path, mode);
  }

  @Override
  public void setXAttr(Path path, String name, byte[] value, EnumSet<XAttrSetFlag> flags)
      throws IOException {
    fs.setXAttr(path, name, value, flags);
  }

  @Override
  public byte[] getXAttr(Path path, String name) throws IOException {
    return fs.getXAttr(path, name);
  }

  @Override
  public Map<String, byte[]> getXAttrs(Path path) throws IOException {
    return fs.getXAttrs(path);
  }

  @Override
  public Map<String, byte[]> getXAttrs(Path path, List<String> names) throws IOException {
    return fs.getXAttrs(path, names);
  }

  @Override
  public List<String> listXAttrs(Path path) throws IOException {
    return fs.listXAttrs(path);
  }

  @Override
  public void removeXAttr(Path path, String name) throws IOException {
    fs.removeXAttr(path, name);
  }

  @Override
  public MultipartUploaderBuilder createMultipartUploader(Path base) throws IOException {
    return fs.createMultipartUploader(base);
  }
}
