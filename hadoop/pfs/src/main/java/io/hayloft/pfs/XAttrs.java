package io.hayloft.pfs;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.UserDefinedFileAttributeView;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import org.apache.hadoop.fs.XAttrSetFlag;

/**
 * Extended attributes of the namespace {@code user.}, the only one that Java reaches. Those of
 * this file system itself are hidden: a tool that copies attributes must not copy them.
 */
final class XAttrs {
  private static final String NAMESPACE = "user.";

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
    UserDefinedFileAttributeView view = viewWith(file, inner);
    ByteBuffer value = ByteBuffer.allocate(view.size(inner));
    view.read(inner, value);
    return Arrays.copyOf(value.array(), value.position());
  }

  /** Names with their namespace. */
  static List<String> list(Path file) throws IOException {
    List<String> names = new ArrayList<>();
    for (String name : view(file).list()) {
      if (!name.startsWith(PfsKeys.ATTRIBUTES)) {
        names.add(NAMESPACE + name);
      }
    }
    return names;
  }

  static void remove(Path file, String name) throws IOException {
    String inner = checked(file, name);
    viewWith(file, inner).delete(inner);
  }

  /** Throws if the file has no such attribute. */
  private static UserDefinedFileAttributeView viewWith(Path file, String inner)
      throws IOException {
    UserDefinedFileAttributeView view = view(file);
    if (!view.list().contains(inner)) {
      throw new IOException(file + " has no extended attribute " + NAMESPACE + inner);
    }
    return view;
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
    if (inner.startsWith(PfsKeys.ATTRIBUTES)) {
      throw new IOException(name + " belongs to the file system itself: " + file);
    }
    return inner;
  }
}
