package io.hayloft.pfs;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.UserDefinedFileAttributeView;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import org.apache.hadoop.fs.XAttrSetFlag;

/**
 * Extended attributes of the namespace {@code user.}, the only one that Java reaches. Those of
 * this file system itself are hidden: a tool that copies attributes must not copy them.
 */
final class XAttrs {
  private static final String NAMESPACE = "user.";

  /** Of this file system, as Java names them, without the namespace. */
  static final String OWN = "hayloft.pfs.";

  private XAttrs() {}

  static void set(Path file, String name, byte[] value, EnumSet<XAttrSetFlag> flags)
      throws IOException {
    String inner = checked(file, name);
    UserDefinedFileAttributeView view = view(file);
    XAttrSetFlag.validate(name, view.list().contains(inner), flags);
    view.write(inner, ByteBuffer.wrap(value == null ? new byte[0] : value));
  }

  static byte[] get(Path file, String name) throws IOException {
    String inner = checked(file, name);
    UserDefinedFileAttributeView view = view(file);
    if (!view.list().contains(inner)) {
      throw new IOException(file + " has no extended attribute " + name);
    }
    return read(view, inner);
  }

  /** Names with their namespace. */
  static List<String> list(Path file) throws IOException {
    List<String> names = new ArrayList<>();
    for (String name : view(file).list()) {
      if (!name.startsWith(OWN)) {
        names.add(NAMESPACE + name);
      }
    }
    return names;
  }

  static void remove(Path file, String name) throws IOException {
    String inner = checked(file, name);
    UserDefinedFileAttributeView view = view(file);
    if (!view.list().contains(inner)) {
      throw new IOException(file + " has no extended attribute " + name);
    }
    view.delete(inner);
  }

  static byte[] read(UserDefinedFileAttributeView view, String inner) throws IOException {
    ByteBuffer value = ByteBuffer.allocate(view.size(inner));
    view.read(inner, value);
    value.flip();
    byte[] bytes = new byte[value.remaining()];
    value.get(bytes);
    return bytes;
  }

  private static UserDefinedFileAttributeView view(Path file) throws IOException {
    UserDefinedFileAttributeView view =
        Files.getFileAttributeView(file, UserDefinedFileAttributeView.class);
    if (view == null) {
      throw new UnsupportedOperationException(
          "the file system of " + file + " has no extended attributes");
    }
    return view;
  }

  private static String checked(Path file, String name) throws IOException {
    if (name == null || !name.startsWith(NAMESPACE) || name.length() == NAMESPACE.length()) {
      throw new UnsupportedOperationException(
          "only extended attributes named user.NAME are supported, not " + name);
    }
    String inner = name.substring(NAMESPACE.length());
    if (inner.startsWith(OWN)) {
      throw new IOException(name + " belongs to the file system itself: " + file);
    }
    return inner;
  }
}
