package io.hayloft.pfs;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.MultipartUploaderBuilder;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.PartHandle;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathHandle;
import org.apache.hadoop.fs.UploadHandle;
import org.apache.hadoop.fs.impl.FileSystemMultipartUploader;
import org.apache.hadoop.fs.impl.FileSystemMultipartUploaderBuilder;
import org.apache.hadoop.io.IOUtils;
import org.apache.hadoop.util.functional.FutureIO;

/**
 * Uploads in parts. Hadoop's own uploader joins the parts without a copy, which HDFS can and a
 * mounted file system cannot; this one copies them into the file, which then takes its name.
 */
final class PfsMultipartUploader extends FileSystemMultipartUploader {
  private static final int COPY_BUFFER = 1 << 20;

  private final PfsFileSystem fs;

  private PfsMultipartUploader(FileSystemMultipartUploaderBuilder builder, PfsFileSystem fs) {
    super(builder, fs);
    this.fs = fs;
  }

  static MultipartUploaderBuilder builder(PfsFileSystem fs, Path base) {
    return new FileSystemMultipartUploaderBuilder(fs, base) {
      @Override
      public FileSystemMultipartUploaderBuilder getThisBuilder() {
        return this;
      }

      @Override
      public FileSystemMultipartUploader build() throws IOException {
        return new PfsMultipartUploader(this, fs);
      }
    };
  }

  @Override
  public CompletableFuture<PathHandle> complete(
      UploadHandle upload, Path path, Map<Integer, PartHandle> handles) throws IOException {
    checkPath(path);
    return FutureIO.eval(() -> join(upload, path, handles));
  }

  private PathHandle join(UploadHandle upload, Path path, Map<Integer, PartHandle> handles)
      throws IOException {
    checkUploadId(upload.toByteArray());
    checkPartHandles(handles);
    List<Path> parts =
        new TreeMap<>(handles)
            .values().stream()
                .map(handle -> new Path(text(handle.toByteArray())))
                .collect(Collectors.toList());
    if (parts.stream().distinct().count() != parts.size()) {
      throw new IllegalArgumentException("a part is named twice");
    }
    Path directory = new Path(text(upload.toByteArray()));
    Path joined = new Path(directory, "joined");
    // Fails if the upload was aborted, as its directory is gone then.
    try (FSDataOutputStream out = fs.createFile(joined).overwrite(true).build()) {
      for (Path part : parts) {
        append(part, out);
      }
    }
    fs.rename(joined, path, Options.Rename.OVERWRITE);
    fs.delete(directory, true);
    return ((FileSystem) fs).getPathHandle(fs.getFileStatus(path));
  }

  private void append(Path part, FSDataOutputStream out) throws IOException {
    try (FSDataInputStream in = fs.open(part)) {
      IOUtils.copyBytes(in, out, COPY_BUFFER, false);
    }
  }

  private static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }
}
