package io.hayloft.lab;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.HdfsConfiguration;

/** Reading arguments out of a request. */
final class Request {
  private Request() {
  }

  /** The client configuration of the class path, with the request's {@code conf} over it. */
  static Configuration conf(ObjectNode request) {
    Configuration conf = new HdfsConfiguration();
    // So that the Jackson of earlier Hadoops does, too.
    JsonNode given = request.path("conf");
    given.fieldNames().forEachRemaining(key -> conf.set(key, given.path(key).asText()));
    return conf;
  }

  /** A client of its own: its lease, connections and configuration are shared with no other. */
  static DistributedFileSystem open(ObjectNode request) throws IOException {
    return (DistributedFileSystem) openAny(request);
  }

  /** As {@link #open}, of whichever file system the path names. */
  static FileSystem openAny(ObjectNode request) throws IOException {
    Configuration conf = conf(request);
    Path path = new Path(request.path("path").asText("/"));
    URI uri = path.toUri().getScheme() == null ? FileSystem.getDefaultUri(conf) : path.toUri();
    FileSystem fs = FileSystem.newInstance(uri, conf);
    fs.setVerifyChecksum(!request.path("noVerify").asBoolean(false));
    return fs;
  }

  static Path path(ObjectNode request) {
    return new Path(text(request, "path"));
  }

  static String text(ObjectNode request, String name) {
    if (!request.hasNonNull(name)) {
      throw new IllegalArgumentException("argument " + name + " is missing");
    }
    return request.get(name).asText();
  }

  static long number(ObjectNode request, String name, long fallback) {
    return request.path(name).asLong(fallback);
  }
}
