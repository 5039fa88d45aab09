package io.hayloft.pfs.copies;

import io.hayloft.pfs.PfsKeys;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.UserDefinedFileAttributeView;

/** Extended attributes of our own, {@code user.hayloft.pfs.NAME}, as short texts. */
final class Attribute {
  /** Far more than any of ours has. */
  private static final int BYTES_MAX = 4096;

  private Attribute() {}

  /** The value, or null if there is none. */
  static String read(Path file, String name) throws IOException {
    UserDefinedFileAttributeView view = view(file);
    try {
      int size = view.size(PfsKeys.ATTRIBUTES + name);
      if (size > BYTES_MAX) {
        throw new IOException(file + ": the attribute " + name + " has " + size + " bytes");
      }
      ByteBuffer value = ByteBuffer.allocate(size);
      view.read(PfsKeys.ATTRIBUTES + name, value);
      return new String(value.array(), 0, value.position(), StandardCharsets.UTF_8);
    } catch (FileSystemException e) {
      if (isMissing(e)) {
        return null;
      }
      throw e;
    }
  }

  private static boolean isMissing(FileSystemException e) {
    String reason = e.getReason();
    return reason != null
        && (reason.contains("No data available") || reason.contains("not supported"));
  }

  static void write(Path file, String name, String value) throws IOException {
    byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
    if (bytes.length > BYTES_MAX) {
      throw new IOException(
          file + ": the attribute " + name + " would have " + bytes.length
              + " bytes: use shorter names in fs.pfs.targets");
    }
    view(file).write(PfsKeys.ATTRIBUTES + name, ByteBuffer.wrap(bytes));
  }

  /** Gives {@code to} all attributes of {@code from}, others' too. */
  static void copyAll(Path from, Path to) throws IOException {
    UserDefinedFileAttributeView source = view(from);
    UserDefinedFileAttributeView sink = view(to);
    for (String name : source.list()) {
      ByteBuffer value = ByteBuffer.allocate(source.size(name));
      source.read(name, value);
      sink.write(name, value.flip());
    }
  }

  static void remove(Path file, String name) throws IOException {
    try {
      view(file).delete(PfsKeys.ATTRIBUTES + name);
    } catch (FileSystemException e) {
      if (!isMissing(e)) {
        throw e;
      }
    }
  }

  private static UserDefinedFileAttributeView view(Path file) throws IOException {
    UserDefinedFileAttributeView view =
        Files.getFileAttributeView(file, UserDefinedFileAttributeView.class);
    if (view == null) {
      throw new IOException(
          "copies need extended attributes, which the file system of " + file + " lacks");
    }
    return view;
  }
}
