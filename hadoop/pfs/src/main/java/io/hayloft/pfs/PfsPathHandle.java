package io.hayloft.pfs;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.hadoop.fs.InvalidPathHandleException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathHandle;

/** A file as it was: where, which inode, and, if the content must not change, how it looked. */
record PfsPathHandle(
    String path, long inode, boolean mayChange, long length, long modifiedMs)
    implements PathHandle {
  private static final long serialVersionUID = 1;
  private static final int VERSION = 1;

  /** Far more than a handle with the longest path has. */
  private static final int BYTES_MAX = 64 << 10;

  static PfsPathHandle parse(PathHandle handle) throws IOException {
    if (handle instanceof PfsPathHandle) {
      return (PfsPathHandle) handle;
    }
    ByteBuffer bytes = handle.bytes();
    if (bytes.remaining() > BYTES_MAX) {
      throw new InvalidPathHandleException("a path handle of " + bytes.remaining() + " bytes");
    }
    byte[] raw = new byte[bytes.remaining()];
    bytes.get(raw);
    try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(raw))) {
      int version = in.readInt();
      if (version != VERSION) {
        throw new InvalidPathHandleException("a path handle of version " + version);
      }
      return new PfsPathHandle(
          in.readUTF(), in.readLong(), in.readBoolean(), in.readLong(), in.readLong());
    } catch (InvalidPathHandleException e) {
      throw e;
    } catch (IOException e) {
      throw new InvalidPathHandleException("not a path handle of pfs", e);
    }
  }

  /** Throws unless the file is still what the handle means. */
  void verify(Path at, Attributes now) throws InvalidPathHandleException {
    if (now.inode() != inode) {
      throw new InvalidPathHandleException(at + " is another file than the handle's");
    }
    if (!mayChange && (now.size() != length || now.modifiedMs() != modifiedMs)) {
      throw new InvalidPathHandleException(at + " has changed since the handle was made");
    }
  }

  @Override
  public ByteBuffer bytes() {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (DataOutputStream out = new DataOutputStream(bytes)) {
      out.writeInt(VERSION);
      out.writeUTF(path);
      out.writeLong(inode);
      out.writeBoolean(mayChange);
      out.writeLong(length);
      out.writeLong(modifiedMs);
    } catch (IOException e) {
      throw new IllegalArgumentException("a path too long for a handle: " + path, e);
    }
    return ByteBuffer.wrap(bytes.toByteArray());
  }
}
